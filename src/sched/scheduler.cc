#include "sched/scheduler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sched/step_aim.h"

namespace skiff::sched {

namespace {

bool has_aim(const Limits& limits) {
  return limits.chunked_prefill && limits.policy.cost.known() &&
         std::isfinite(limits.policy.step_seconds);
}

Limits resolved(Limits limits) {
  Policy& policy = limits.policy;
  if (policy.long_prompt == 0)
    policy.long_prompt = has_aim(limits) ? long_prompt_for(policy.cost, policy.step_seconds)
                                         : default_long_prompt(limits.max_context);
  return limits;
}

// Returns whether draws depend on no earlier token, but for min_tokens, and nothing but the token
// is requested.
bool draws_alone(const SamplingParams& params) {
  const bool short_words = std::ranges::all_of(
      params.bad_words, [](const std::vector<Token>& word) { return word.size() <= 1; });
  return short_words && params.repetition == 1 && params.presence == 0 && params.frequency == 0 &&
         params.logprobs == kNoLogprobs && !params.constraint;
}

}  // namespace

Scheduler::Scheduler(const Limits& limits, kv::CacheIndex& cache)
    : has_aim_(has_aim(limits)),
      limits_(resolved(limits)),
      cache_(cache),
      // The last token of a sequence is never computed, so it takes no position in the cache.
      capacity_(static_cast<int>(std::min<int64_t>(
          limits.max_context, int64_t{cache.num_blocks()} * cache.block_size() + 1))) {
  SKIFF_CHECK(limits.max_seqs >= 1 && limits.max_seqs <= limits.max_logit_rows);
  SKIFF_CHECK(limits.max_rows >= 1 && limits.max_context >= 2 && cache.num_blocks() >= 1);
  for (int slot = limits.max_seqs; slot-- > 0;) free_slots_.push_back(slot);
}

// Checks that each slot is free or belongs to a running sequence.
Scheduler::~Scheduler() {
  SKIFF_CHECK_EQ(free_slots_.size() + running_.size(), static_cast<size_t>(limits_.max_seqs));
}

std::vector<Event> Scheduler::take_events() { return std::exchange(events_, {}); }

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = counters_;
  stats.running = static_cast<int>(running_.size());
  stats.waiting = static_cast<int>(waiting_.size());
  stats.tiers = cache_.tiers().stats();
  return stats;
}

// Checks what differs between sequences that are continued and those that are pooled.
Status Scheduler::check_kind(const NewSequence& in) const {
  const auto invalid = [](const char* what, const char* field) {
    return Error{Code::kInvalid, what, field};
  };
  if (!in.pooling && !limits_.generates)
    return invalid(
        "the model is pooled (see --runner) and cannot generate; --runner generate loads it with "
        "its language head, if it has one",
        "prompt");
  if (in.pooling && in.params.prompt_logprobs != kNoLogprobs)
    return invalid("a sequence that is pooled has no log-probabilities", "prompt_logprobs");
  return ok();
}

Status Scheduler::check(const NewSequence& in) const {
  const auto invalid = [](std::string what, const char* field) {
    return Error{Code::kInvalid, std::move(what), field};
  };
  const size_t prompt = in.prompt.size();
  if (prompt == 0) return invalid("the prompt has no tokens", "prompt");
  if (Status kind = check_kind(in); !kind) return kind;
  if (in.written < 0 || static_cast<size_t>(in.written) > prompt)
    return invalid(fmt::format("{} of {} tokens of the prompt are output", in.written, prompt),
                   "prompt");
  if (in.stop.max_tokens < 1)
    return invalid(fmt::format("max_tokens is {}; it must be at least 1", in.stop.max_tokens),
                   "max_tokens");
  if (prompt + (in.pooling ? 0 : 1) > static_cast<size_t>(limits_.max_context))
    return invalid(
        fmt::format("the prompt has {} tokens; {}that is more than the context of {} "
                    "tokens",
                    prompt, in.pooling ? "" : "with one token of output ", limits_.max_context),
        "prompt");
  if (in.params.prompt_logprobs != kNoLogprobs) {
    const int64_t each = 1 + std::min<int64_t>(in.params.prompt_logprobs,
                                               limits_.vocab > 0 ? limits_.vocab : kAllLogprobs);
    const int64_t candidates = each * static_cast<int64_t>(prompt);
    if (candidates > limits_.max_prompt_candidates)
      return invalid(
          fmt::format("prompt_logprobs asks for {} candidates at each of {} tokens, {} in all; at "
                      "most {} are given: ask for fewer, or send a shorter prompt",
                      each, prompt, candidates, limits_.max_prompt_candidates),
          "prompt_logprobs");
  }
  const int blocks = cache_.blocks_for(static_cast<int>(prompt));
  if (blocks > cache_.num_blocks())
    return invalid(fmt::format("the prompt has {} tokens and needs {} cache blocks of {} tokens; "
                               "there are {}",
                               prompt, blocks, cache_.block_size(), cache_.num_blocks()),
                   "prompt");
  for (const Token t : in.prompt) {
    if (t < 0 || (limits_.vocab > 0 && t >= limits_.vocab))
      return invalid(
          fmt::format("the prompt has token {}; the vocabulary has {} tokens", t, limits_.vocab),
          "prompt");
  }
  return ok();
}

Status Scheduler::add(NewSequence in) {
  if (in.continues && in.prompt.size() >= static_cast<size_t>(capacity_)) {
    cancel(*in.continues);
    events_.push_back({.seq = in.id, .finish = Finish::kLength});
    return ok();
  }
  if (Status status = check(in); !status) return status;
  auto s = std::make_unique<Sequence>();
  s->id = in.id;
  s->params = std::move(in.params);
  s->draws_alone = draws_alone(s->params);
  s->stop_tokens = std::move(in.stop.tokens);
  s->prompt_len = static_cast<int>(in.prompt.size());
  s->written = in.written;
  s->is_long = s->prompt_len > limits_.policy.long_prompt;
  if (limits_.policy.forced_rate) s->acceptance = Acceptance(*limits_.policy.forced_rate);
  s->rank = rank_of(*s, in.priority);
  if (in.continues) take_place(*s, *in.continues);
  s->pooling = std::move(in.pooling);
  s->reference = std::move(in.reference);
  s->limit = s->pooling ? 1 : std::min(in.stop.max_tokens, capacity_ - s->prompt_len);
  s->tokens = std::move(in.prompt);
  s->table.sharing = std::move(in.cache);
  s->expects =
      cache_.expect(s->table, std::span(s->tokens).first(static_cast<size_t>(s->reusable())),
                    {.owner = s->id,
                     .prompt = s->tokens,
                     .origin = in.origin ? &*in.origin : nullptr,
                     .priority = in.priority});
  waiting_.emplace(s->rank, s.get());
  const bool is_new = all_.emplace(in.id, std::move(s)).second;
  SKIFF_CHECK(is_new, "sequence {} exists already", in.id);
  return ok();
}

QueueRank Scheduler::rank_of(const Sequence& s, int priority) {
  const auto arrival = static_cast<int64_t>(++arrivals_);
  const Policy& policy = limits_.policy;
  const int yields = s.is_long ? policy.long_yields : short_yields(s.prompt_len, policy);
  return {arrival + int64_t{policy.ageing} * priority + yields, -arrival};
}

// The sequence that is continued may have ended by itself meanwhile. Ranks stay unique, because
// that sequence keeps its own until no step in flight names it.
void Scheduler::take_place(Sequence& s, SeqId of) {
  s.continues = true;
  const auto found = all_.find(of);
  if (found == all_.end()) return;
  s.rank.first = found->second->rank.first;
  s.is_long = found->second->is_long;
  cancel(of);
}

void Scheduler::cancel(SeqId id) {
  const auto it = all_.find(id);
  if (it == all_.end() || it->second->finish != Finish::kNone) return;
  Sequence& s = *it->second;
  events_.push_back({.seq = id, .finish = Finish::kCancelled});
  end(s, Finish::kCancelled);
  if (s.in_flight == 0) release(s);
}

void Scheduler::cancel_all() {
  std::vector<SeqId> ids;
  ids.reserve(all_.size());
  for (const auto& [id, s] : all_) ids.push_back(id);
  for (const SeqId id : ids) cancel(id);
}

void Scheduler::commit(const StepPlan& plan, const StepResult& result) {
  SKIFF_CHECK(plan.step == result.step && plan.spans.size() == result.tokens.size());
  cache_.tiers().committed(plan.step);
  cache_.tiers().measured(static_cast<int>(plan.tokens.size()),
                          static_cast<int>(plan.saves.size() + plan.loads.size()), result.seconds,
                          result.copy_seconds);
  events_.reserve(events_.size() + plan.spans.size());
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    Sequence& s = *all_.at(plan.spans[i].seq);
    --s.in_flight;
    const Span& span = plan.spans[i];
    s.unknown -= span.sample + (plan.chained ? span.draft : 0);
    if (s.last_step == plan.step) {
      s.unsure = 0;
      s.ahead = false;
    }
    if (s.finish == Finish::kNone) absorb(s, span, result, i);
    if (s.finish != Finish::kNone && s.in_flight == 0) release(s);
  }
}

void Scheduler::absorb(Sequence& s, const Span& span, const StepResult& result, size_t i) {
  const std::vector<Token>& gained = result.tokens[i];
  SKIFF_CHECK(span.sample != gained.empty() && gained.size() <= size_t(span.draft) + 1);
  const int kept = span.sample ? static_cast<int>(gained.size()) - 1 : 0;
  const int begin = span.after_drafts ? s.known() - 1 : span.begin;
  const int computed = begin + span.count - span.draft + kept;
  s.planned -= span.draft - kept;  // later steps overwrite rejected drafts

  if (!limits_.policy.forced_rate) learn_from(s, span, gained);
  Event event{.seq = s.id};
  event.tokens.reserve(gained.size());
  for (const Token token : gained) {
    event.tokens.push_back(token);
    take_token(s, token);
    if (s.finish != Finish::kNone) break;
  }
  if (span.pool) {
    event.pooled = result.pooled.at(i);
    end(s, Finish::kStop);
  }
  event.finish = s.finish;
  event.drafted = span.draft;
  event.kept = std::min(kept, static_cast<int>(event.tokens.size()));
  counters_.drafts.count(event.drafted, event.kept);
  if (s.params.logprobs != kNoLogprobs && span.sample) {
    const auto& all = result.logprobs.at(i);
    event.logprobs.assign(all.begin(), all.begin() + static_cast<long>(event.tokens.size()));
  }
  report_drafts(s, event);
  if (span.prompt_logprobs != kNoLogprobs) event.prompt_logprobs = result.prompt_logprobs.at(i);
  if (!event.tokens.empty() || !event.prompt_logprobs.empty() || span.pool)
    events_.push_back(std::move(event));

  // The row of the prompt's last token is computed where the first token is drawn.
  if (span.sample && span.begin < s.prompt_len && cache_.tiers().hands_over())
    cache_.hand_over_rest(s.table, std::span(s.tokens).first(size_t(s.prompt_len - 1)));
  cache_.publish(s.table, s.tokens, std::min(computed, s.known()));
  s.drafts.clear();
  if (i < result.drafts.size()) s.drafts = result.drafts[i];
  s.draft_logprobs.clear();
  if (i < result.draft_logprobs.size()) s.draft_logprobs = result.draft_logprobs[i];
}

// What a draw counts or bans, or what is requested of it, must not depend on tokens that only the
// device knows.
bool Scheduler::may_chain(const StepPlan& plan, size_t span) const {
  const Span& s = plan.spans[span];
  const Sequence& sequence = *all_.at(s.seq);
  const int pages = plan.page_start[span + 1] - plan.page_start[span];
  const int end = s.begin + s.count + limits_.chained_reach;
  return s.sample && s.count == 1 + s.draft && s.prompt_logprobs == kNoLogprobs && sequence.ready &&
         sequence.draws_alone && sequence.produced() >= sequence.params.min_tokens &&
         end <= pages * cache_.block_size();
}

bool Scheduler::chain(const StepPlan& plan) {
  if (limits_.chained_drafts == 0 || plan.spans.empty()) return false;
  for (size_t i = 0; i < plan.spans.size(); ++i)
    if (!may_chain(plan, i)) return false;
  for (const Span& span : plan.spans) {
    Sequence& s = *all_.at(span.seq);
    s.unknown += span.draft;
    s.unsure = span.draft;
    s.ahead = true;
  }
  ++counters_.chained_steps;
  return true;
}

// A draft stood in the place of a token if all before it were right, whether it was checked or not.
void Scheduler::report_drafts(Sequence& s, Event& event) {
  const size_t most = std::min(event.tokens.size(), s.draft_logprobs.size());
  for (size_t j = 0; j < most; ++j) {
    event.draft_logprobs.push_back({static_cast<int>(j), std::move(s.draft_logprobs[j])});
    if (s.drafts.at(j) != event.tokens[j]) break;
  }
}

// The tokens tell of the drafts that were checked and of the one behind them; where none was
// checked, of the first.
void Scheduler::learn_from(Sequence& s, const Span& span, const std::vector<Token>& gained) {
  if (!span.sample) return;
  const auto known = static_cast<long>(std::min<size_t>(s.drafts.size(), size_t(span.draft) + 1));
  const auto wrong = std::ranges::mismatch(s.drafts.begin(), s.drafts.begin() + known,
                                           gained.begin(), gained.end())
                         .in1;
  s.acceptance.saw(static_cast<int>(known), static_cast<int>(wrong - s.drafts.begin()));
}

void Scheduler::take_token(Sequence& s, Token token) {
  s.tokens.push_back(token);
  ++counters_.generation_tokens;
  // The sampler does not draw stop tokens earlier, unless every other token is impossible.
  const bool may_stop = s.produced() > s.params.min_tokens;
  if (may_stop && std::ranges::find(s.stop_tokens, token) != s.stop_tokens.end())
    end(s, Finish::kStop);
  else if (s.produced() >= s.limit)
    end(s, Finish::kLength);
}

void Scheduler::end(Sequence& s, Finish finish) {
  s.finish = finish;
  if (holder_ == &s) holder_ = nullptr;
}

void Scheduler::release_expected(Sequence& s) {
  if (std::exchange(s.expects, false)) cache_.release(s.id);
}

void Scheduler::release(Sequence& s) {
  release_expected(s);
  cache_.close(s.table);
  if (s.slot >= 0) free_slots_.push_back(s.slot);
  (s.slot >= 0 ? running_ : waiting_).erase(s.rank);
  all_.erase(s.id);
}

}  // namespace skiff::sched

#include "sched/plan_builder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"

namespace skiff::sched {

namespace {

// Where decodes alone take longer than the aim, prompts make the step this many times as long, so
// that they still get somewhere.
constexpr double kPromptShare = 1.5;
// A long prompt that runs while short ones go before it keeps this share of the time and of the
// rows for prompts.
constexpr double kLongShare = 0.25;
// The first prompt of a step gets at least so many rows, however short the aim is, and so does a
// long one behind short ones; no further prompt is cut to fewer, since each chunk reads all the
// keys before it again.
constexpr int kLeastChunk = 32;

// Returns the rows that drafts may take: never rows that another decode needs; at most half of the
// rest while prompts want rows; and none while a prompt that cannot be cut to fit wants them.
int draft_rows(const Limits& limits, int decodes, bool prefills) {
  const int rest = limits.max_rows - decodes;
  const int share = !prefills ? rest : limits.chunked_prefill ? rest / 2 : 0;
  return std::min(share, limits.max_logit_rows - limits.max_seqs);
}

// Returns how many blocks a step may load: as many as the decodes alone take the time for. Were
// there more, the next step would wait for them if it reads them, and the tokens of this one would
// be told late; but a little more is better than another step before a prompt's first token.
int loads_of(const Limits& limits, const Wanted& wanted) {
  constexpr double kLeastLoads = 4, kMore = 1.125;
  if (wanted.decodes == 0) return std::numeric_limits<int>::max();
  if (limits.policy.max_loads > 0) return limits.policy.max_loads;
  if (wanted.base == 0 || wanted.load == 0) return std::numeric_limits<int>::max();
  return static_cast<int>(std::clamp(kMore * wanted.base / wanted.load, kLeastLoads, 1e9));
}

}  // namespace

PlanBuilder::PlanBuilder(uint64_t step, const Limits& limits, const Wanted& wanted)
    : limits_(limits),
      rows_(limits.max_rows),
      logit_rows_(limits.max_logit_rows),
      loads_(loads_of(limits, wanted)),
      computes_(wanted.computes),
      draft_rows_(
          draft_rows(limits, std::min(wanted.decodes, limits.max_rows), wanted.prompts > 0)),
      draft_length_(limits.policy.cost, wanted.decodes, wanted.base),
      long_cost_(limits.policy.long_chunk) {
  if (wanted.aim > 0) {
    owes_long_ = wanted.long_rows > 0;
    end_ = std::max(wanted.aim, kPromptShare * wanted.base);
    short_end_ = owes_long_ ? end_ - kLongShare * (end_ - wanted.base) : end_;
    finish_ = owes_long_ ? short_end_ : std::max(end_, wanted.finish);
    const int rest = std::max(0, limits.max_rows - wanted.decodes);
    long_rows_ = std::min(wanted.long_rows, static_cast<int>(kLongShare * rest));
  }
  plan_.step = step;
  reserve(static_cast<size_t>(wanted.decodes), static_cast<size_t>(wanted.pages));
  plan_.page_start = {0};
}

// Lists that grow would be copied several times in a step of many sequences.
void PlanBuilder::reserve(size_t seqs, size_t pages) {
  plan_.spans.reserve(seqs);
  plan_.tokens.reserve(2 * seqs);
  plan_.pages.reserve(pages);
  plan_.page_start.reserve(seqs + 1);
}

int PlanBuilder::drafts_for(const Sequence& s) const {
  if (s.unknown > 0 && !s.ahead) return 0;  // drafts follow a token that is not known yet
  const int there = s.ahead ? limits_.chained_drafts : static_cast<int>(s.drafts.size());
  const int most = std::min({there, draft_rows_, s.limit - s.produced() - s.unknown - 1});
  return draft_length_.length(s.acceptance, s.planned, most);
}

// The first draft is a guess of the token that is not known. If it is right, as many drafts will
// follow it.
double PlanBuilder::worth_waiting(const Sequence& s) const {
  if (s.unknown == 0 || s.ahead || s.drafts.empty()) return 0;
  const int most = std::min(
      {static_cast<int>(s.drafts.size()), draft_rows_, s.limit - s.produced() - s.unknown - 1});
  const int length = draft_length_.length(s.acceptance, s.planned, most);
  return s.acceptance.rate() * s.acceptance.expected(length);
}

// The cost of one row, in units of a row at position 0. A chunk is short, so the cost at its first
// row stands for all of them.
double PlanBuilder::cost_of_row(const Sequence& s) const {
  const int context = limits_.policy.row_context;
  return context > 0 ? 1 + static_cast<double>(s.planned) / context : 1;
}

// Returns how many of the next `most` rows of a prompt the step has time for.
int PlanBuilder::timed_rows(const Sequence& s, int most) const {
  const StepCost& cost = limits_.policy.cost;
  const double end = s.is_long ? end_ : short_end_;
  const int used = limits_.max_rows - rows_;
  const auto seconds = [&](int count) {
    return cost.seconds(used + count) + attention_ + cost.attention(s.planned, count);
  };
  if (seconds(most) <= (most == s.left() && !s.is_long ? finish_ : end)) return most;
  const auto in_time = [&](int count) { return seconds(count) <= end; };
  int count = 0;
  for (int above = most; above - count > 1;) {
    const int middle = count + (above - count) / 2;
    (in_time(middle) ? count : above) = middle;
  }
  const int cut = cost.best_end(used + count) - used;
  if (cut > 0) count = cut;
  const int least = std::min(most, kLeastChunk);
  if (count >= least) return count;
  return prompt_rows_ == 0 || (owes_long_ && s.is_long) ? least : 0;
}

bool PlanBuilder::is_large(const Sequence& s) const {
  if (s.slot >= 0) return s.is_large;
  return !s.is_long && s.left() > limits_.policy.large_prompt;
}

bool PlanBuilder::is_one_too_large(const Sequence& s) const {
  return limits_.policy.max_large > 0 && large_ >= limits_.policy.max_large && is_large(s);
}

int PlanBuilder::rows_for(const Sequence& s) const {
  int want = s.left();
  if (s.owes_report())
    want = s.planned < s.reported ? s.reported - s.planned : std::min(want, logit_rows_);
  const bool may_cut = limits_.chunked_prefill || want > limits_.max_rows - limits_.max_seqs;
  if (want > rows_ && !may_cut) return 0;
  int count = std::min(want, s.is_long ? rows_ : std::max(0, rows_ - long_rows_));
  if (end_ > 0 && limits_.chunked_prefill)
    count = count > 0 ? timed_rows(s, count) : 0;
  else if (s.is_long && limits_.chunked_prefill && limits_.policy.long_chunk > 0)
    count = std::min(count, std::max(0, static_cast<int>(std::ceil(long_cost_ / cost_of_row(s)))));
  return count == s.left() && logit_rows_ == 0 ? 0 : count;
}

int PlanBuilder::take_loads(size_t wanted) {
  const int loads = std::min(static_cast<int>(wanted), loads_);
  loads_ -= loads;
  return loads;
}

void PlanBuilder::add(Sequence& s, int count, int draft) {
  open(s);
  const int end = s.planned + count;
  const bool last = end - draft == s.total();
  const bool sample = last && !s.pooling, pool = last && s.pooling;
  const bool pool_logits = pool && s.pooling.logits;
  const bool report = s.owes_report() && s.planned >= s.reported;
  plan_.spans.push_back(
      {.seq = s.id,
       .slot = s.slot,
       .begin = s.planned,
       .count = count,
       .draft = draft,
       .sample = sample,
       .prompt_logprobs = report ? s.params.prompt_logprobs : kNoLogprobs,
       .next = last ? -1 : s.tokens[static_cast<size_t>(end)],
       .pool = pool,
       .pool_logits = pool_logits,
       .draft_logprobs = sample && s.params.draft_logprobs ? s.params.logprobs : kNoLogprobs,
       .after_drafts = s.unsure > 0});
  for (int i = s.planned; i < end - draft; ++i)
    plan_.tokens.push_back(i < s.known() ? s.tokens[static_cast<size_t>(i)] : kOnDevice);
  for (int i = 0; i < draft; ++i)
    plan_.tokens.push_back(s.ahead ? kOnDevice : s.drafts[static_cast<size_t>(i)]);
  const auto pages = s.table.blocks.begin();
  plan_.pages.insert(plan_.pages.end(), pages, s.table.blocks.end());
  plan_.page_start.push_back(static_cast<int32_t>(plan_.pages.size()));

  draft_length_.add(s.acceptance, s.planned, draft);
  if (end_ > 0) attention_ += limits_.policy.cost.attention(s.planned, count);
  if (count > 1 + draft) prompt_rows_ += count;
  large_ += s.is_large && count > 1 + draft;
  if (s.is_long && count > 1 + draft) {
    long_cost_ -= count * cost_of_row(s);
    owes_long_ = false;
    long_rows_ = 0;
  }
  s.planned = end;
  s.unknown += sample;
  s.ready = s.ahead || (s.in_flight == 0 && std::ssize(s.drafts) == limits_.chained_drafts);
  s.unsure = 0;
  s.ahead = false;
  ++s.in_flight;
  s.last_step = plan_.step;
  if (report) s.reported = end;
  rows_ -= count;
  draft_rows_ -= draft;
  logit_rows_ -= report ? count : sample * (1 + draft) + pool_logits;
  SKIFF_CHECK(rows_ >= 0 && logit_rows_ >= 0, "step {} is over its limits", plan_.step);
}

// Tells the device of the slot before its first rows.
void PlanBuilder::open(Sequence& s) {
  if (std::exchange(s.opened, true)) return;
  plan_.opened.push_back({.slot = s.slot,
                          .params = s.params,
                          .history = s.tokens,
                          .prompt_len = s.prompt_len,
                          .stop_tokens = s.stop_tokens,
                          .pooling = s.pooling,
                          .reference = s.reference,
                          .written = s.written});
}

}  // namespace skiff::sched

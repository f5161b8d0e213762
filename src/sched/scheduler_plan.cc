// sched/scheduler_plan.cc -- the planning half of Scheduler; scheduler.cc has the rest.
#include <algorithm>
#include <cmath>
#include <utility>

#include "sched/plan_builder.h"
#include "sched/scheduler.h"
#include "sched/step_aim.h"

namespace skiff::sched {
namespace {

// Between two steps other work takes the processor's caches. What loops over the sequences would
// wait for the memory of each in turn; here all of it is on its way at once.
void warm(const std::map<QueueRank, Sequence*>& sequences) {
  constexpr size_t kLine = 64;
  for (const auto& [rank, s] : sequences)
    for (size_t at = 0; at < sizeof(Sequence); at += kLine)
      __builtin_prefetch(reinterpret_cast<const std::byte*>(s) + at);
}

}  // namespace

// Blocks are saved once the step that computes them is committed, and stored once the plan that
// saves them is. Where somebody waits for them, neither shall take as long as the rows of the next
// prompt: no rows are planned while others are in flight, and saves have a step of their own.
StepPlan Scheduler::plan() {
  if (cache_.tiers().hands_over()) {
    if (has_rows_in_flight()) return {};
    if (StepPlan saves = plan_saves(); !saves.empty()) return saves;
  }
  const Wanted wanted = this->wanted();
  PlanBuilder step(step_ + 1, limits_, wanted);
  if (waits_for_drafts(step)) return {};
  reserve_ = std::max(limits_.policy.reserve_min, reserve_ - limits_.policy.reserve_decay);
  const uint64_t preemptions = counters_.preemptions;
  // Where steps have an aim in time, long prompts get what short ones leave of it, those included
  // that start in this step.
  const PromptKind first = has_aim_ ? PromptKind::kShort : PromptKind::kAny;
  if (!cache_.tiers().empty()) continue_loads(step);
  const bool roomy = continue_decodes(step) && continue_prefills(step, first);
  const auto may_admit = [&] {  // a step that preempted a sequence admits none
    return roomy && holder_ == nullptr && preemptions == counters_.preemptions;
  };
  if (may_admit()) admit(step);
  if (has_aim_ && roomy) continue_prefills(step, PromptKind::kLong);
  StepPlan plan = step.take();
  cache_.finish(plan);
  if (!plan.empty()) ++step_;
  return plan;
}

bool Scheduler::has_rows_in_flight() const {
  return std::ranges::any_of(running_, [](const auto& each) { return each.second->in_flight > 0; });
}

StepPlan Scheduler::plan_saves() {
  StepPlan plan;
  if (!cache_.tiers().owes_saves()) return plan;
  plan = PlanBuilder(step_ + 1, limits_, {}).take();
  cache_.finish(plan);
  if (!plan.empty()) ++step_;
  return plan;
}

Wanted Scheduler::wanted() const {
  const StepCost& cost = limits_.policy.cost;
  Wanted wanted{.prompts = static_cast<int>(waiting_.size())};
  StepLoad load;
  warm(running_);
  for (const auto& [rank, s] : running_) {
    wanted.pages += static_cast<int>(s->table.blocks.size()) + 1;
    wanted.prompts += s->loads();
    if (!s->wants_rows()) continue;
    wanted.computes = true;
    if (s->left() == 1) {
      ++load.decodes;
      if (cost.known()) load.attention += cost.attention(s->planned, 1);
      continue;
    }
    ++wanted.prompts;
    if (s->is_long) wanted.long_rows += s->left();
  }
  wanted.decodes = load.decodes;
  wanted.load = cache_.tiers().copy_seconds();
  if (cost.known() && load.decodes > 0) wanted.base = cost.seconds(load.decodes) + load.attention;
  if (!has_aim_ || wanted.prompts == 0) return wanted;
  load.backlog = backlog();
  load.alone = load.decodes == 0 && wanted.prompts == 1;
  load.only_prompts = limits_.policy.only_prompts;
  wanted.aim = step_aim(cost, limits_.policy.step_seconds, load);
  wanted.finish = finish_aim(limits_.policy.step_seconds, wanted.aim, load.only_prompts);
  return wanted;
}

// Drafts follow a token, so they cannot be checked in a step that is planned before that token is
// known. Where they promise more than planning ahead saves, no step is planned until it is known.
bool Scheduler::waits_for_drafts(const PlanBuilder& step) const {
  constexpr double kPlanningAhead = 0.1;  // the share of a step's time that planning ahead saves
  int decodes = 0;
  double more = 0;
  for (const auto& [rank, s] : running_) {
    if (!s->wants_rows() || s->left() != 1) continue;
    ++decodes;
    more += step.worth_waiting(*s);
  }
  return more > kPlanningAhead * decodes;
}

// Returns about how many seconds the prompts that wait take.
double Scheduler::backlog() const {
  constexpr size_t kLooked = 32;  // the first of them stand for all: a bound on the cost of a step
  double rows = 0;
  size_t looked = 0;
  for (auto it = waiting_.begin(); it != waiting_.end() && looked < kLooked; ++it, ++looked)
    rows += it->second->known();
  if (looked == 0) return 0;
  const double each = rows / static_cast<double>(looked);
  return each * static_cast<double>(waiting_.size()) / limits_.policy.cost.best_rate();
}

bool Scheduler::held_back(const Sequence& s) const {
  return holder_ != nullptr && s.rank > holder_->rank;
}

// Goes on with loads that one step has no time for.
void Scheduler::continue_loads(PlanBuilder& step) {
  for (const auto& [rank, s] : running_) {
    if (s->finish != Finish::kNone || !s->loads()) continue;
    cache_.load(s->table, s->tokens, step.take_loads(s->table.found.size()));
  }
}

// Returns whether the rows of a sequence are left to a later step, because this one loads blocks of
// it, and would wait.
bool Scheduler::waits_for_loads(const Sequence& s, PlanBuilder& step) const {
  if (!cache_.loads(s.table)) return false;
  if (!step.may_wait_for_loads()) return true;
  step.wait_for_loads();
  return false;
}

// Both loops may erase elements behind `it` (preempted sequences), so `it` is advanced only after
// the body.
bool Scheduler::continue_decodes(PlanBuilder& step) {
  for (auto it = running_.begin(); it != running_.end() && step.rows_left() > 0;) {
    Sequence& s = *it->second;
    // Where most sequences have no drafts, the one whose drafts promise more than the token of a
    // step that it misses sits that step out.
    const bool waits = step.worth_waiting(s) > 1;
    if (!s.wants_rows() || s.left() != 1 || waits || held_back(s) || waits_for_loads(s, step)) {
      ++it;
      continue;
    }
    int draft = step.drafts_for(s);
    if (draft > 0 && !cache_.grow(s.table, s.planned + 1 + draft)) draft = 0;
    const bool room = make_room(s, s.planned + 1 + draft);
    // Without blocks for further drafts the step is not chained.
    const int further = s.planned + 1 + draft + limits_.chained_reach;
    if (room && limits_.chained_reach > 0 && further <= capacity_) cache_.grow(s.table, further);
    if (room) step.add(s, 1 + draft, draft);
    if (!room && wait_for_room(s)) return false;
    ++it;
    if (!room && s.in_flight == 0) preempt(s);
  }
  return true;
}

bool Scheduler::continue_prefills(PlanBuilder& step, PromptKind kind) {
  for (auto it = running_.begin(); it != running_.end() && step.rows_left() > 0;) {
    Sequence& s = *it->second;
    const bool asked = kind == PromptKind::kAny || s.is_long == (kind == PromptKind::kLong);
    const bool wants = asked && s.wants_rows() && s.left() > 1 && s.last_step <= step_;
    const bool may =
        wants && !held_back(s) && !step.is_one_too_large(s) && !waits_for_loads(s, step);
    const int count = may ? step.rows_for(s) : 0;
    if (count == 0) {
      ++it;
      continue;
    }
    const bool room = make_room(s, s.planned + count);
    if (room) step.add(s, count, 0);
    if (!room && wait_for_room(s)) return false;
    ++it;
    if (!room && s.in_flight == 0) preempt(s);
  }
  return true;
}

// Preempts as many sequences behind `s` as it takes. On failure no more of them can be preempted.
bool Scheduler::make_room(Sequence& s, int tokens) {
  while (!cache_.grow(s.table, tokens)) {
    Sequence* victim = victim_for(s);
    if (victim == nullptr) return false;
    preempt(*victim);
  }
  if (holder_ == &s) holder_ = nullptr;
  return true;
}

// The blocks of a sequence that this step loads are not given to its rows.
Sequence* Scheduler::victim_for(const Sequence& s) const {
  for (auto it = running_.rbegin(); it != running_.rend() && it->first > s.rank; ++it) {
    const Sequence& behind = *it->second;
    if (behind.in_flight == 0 && !cache_.loads(behind.table)) return it->second;
  }
  return nullptr;
}

// Called when there was no room for `s`. Returns true if waiting for steps in flight can free
// blocks: blocks of sequences behind it, which are held back from now on, or of sequences that have
// ended.
bool Scheduler::wait_for_room(const Sequence& s) {
  if (running_.rbegin()->first > s.rank) {
    holder_ = &s;
    return true;
  }
  return std::ranges::any_of(running_,
                             [](const auto& r) { return r.second->finish != Finish::kNone; });
}

// Returns the number of blocks that a running sequence needs, or soon may need.
int Scheduler::reserve_of(const Sequence& s) const {
  const int have = static_cast<int>(s.table.blocks.size());
  const int known = std::max(0, cache_.blocks_for(s.total()) - have);
  const int most = std::max(0, cache_.blocks_for(s.prompt_len + s.limit) - have);
  return std::min(most, known + std::max(1, static_cast<int>(std::ceil(reserve_))));
}

int Scheduler::reserved_blocks() const {
  int blocks = 0;
  for (const auto& [rank, s] : running_)
    if (s->finish == Finish::kNone) blocks += reserve_of(*s);
  return blocks;
}

// Admits waiting sequences in the order of rank. A sequence for which there is no memory is
// overtaken by as many that fit as Policy allows; a long prompt that may not be cut yet is
// overtaken by all, and so are large ones in a step that has as many as it may.
void Scheduler::admit(PlanBuilder& step) {
  constexpr size_t kMaxPassed = 8, kMaxSkipped = 64, kMaxHeld = 1024;  // bounds a step's cost
  std::vector<Sequence*> passed;
  size_t skipped = 0, held = 0;
  int reserved = reserved_blocks();
  Partial partial = count_partial();
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (free_slots_.empty() || step.rows_left() == 0) return read_ahead();
    Sequence& s = *it->second;
    ++it;
    if (cache_.held(s.table)) {
      if (++held > kMaxHeld) return;
      continue;
    }
    if (s.known() > step.rows_for(s) && !may_be_partial(s, partial)) {
      if (++skipped > kMaxSkipped) return;
      continue;
    }
    open(s);
    if (step.is_one_too_large(s)) {
      close(s);
      if (++skipped > kMaxSkipped) return;
      continue;
    }
    const bool rows = step.rows_for(s) > 0;
    const bool room = rows && fits(s, reserved);
    if (room && fetch(s)) continue;
    if (room) {
      start(s, step);
      reserved += reserve_of(s);
      partial.add(s);
      bool enough = false;
      for (Sequence* waits : passed) enough |= ++waits->overtaken >= limits_.policy.max_overtakes;
      if (enough) return;
      continue;
    }
    close(s);
    passed.push_back(&s);
    if (!rows || s.overtaken >= limits_.policy.max_overtakes || passed.size() > kMaxPassed) return;
  }
}

void Scheduler::open(Sequence& s) {
  s.planned = cache_.open(s.table, std::span(s.tokens).first(static_cast<size_t>(s.reusable())));
}

void Scheduler::close(Sequence& s) {
  cache_.close(s.table);
  s.planned = 0;
}

// Returns true if an opened sequence must wait for a source of blocks; it is then closed.
bool Scheduler::fetch(Sequence& s) {
  const auto tokens = std::span(s.tokens).first(static_cast<size_t>(s.reusable()));
  if (!cache_.fetch(s.table, tokens)) return false;
  close(s);
  return true;
}

// Starts the fetches of the next sequence early, so that it need not wait once it is admitted.
void Scheduler::read_ahead() {
  if (!cache_.tiers().has_sources() || waiting_.empty()) return;
  Sequence& s = *waiting_.begin()->second;
  if (std::exchange(read_ahead_, s.id) == s.id) return;
  open(s);
  if (!fetch(s)) close(s);
}

Scheduler::Partial Scheduler::count_partial() const {
  Partial partial;
  for (const auto& [rank, s] : running_)
    if (s->finish == Finish::kNone) partial.add(*s);
  return partial;
}

bool Scheduler::may_be_partial(const Sequence& s, const Partial& now) const {
  const Policy& policy = limits_.policy;
  if (policy.max_partial > 0 && now.all >= policy.max_partial) return false;
  return !s.is_long || policy.max_long_partial == 0 || now.of_long < policy.max_long_partial;
}

bool Scheduler::fits(const Sequence& s, int reserved) const {
  const int need = cache_.blocks_for(s.known()) - static_cast<int>(s.table.blocks.size());
  return running_.empty() || need + reserved <= cache_.num_free();
}

void Scheduler::start(Sequence& s, PlanBuilder& step) {
  waiting_.erase(s.rank);
  running_.emplace(s.rank, &s);
  s.is_large = step.is_large(s);
  s.slot = free_slots_.back();
  free_slots_.pop_back();
  if (!s.admitted) {
    s.admitted = true;
    if (!s.continues) {
      counters_.prompt_tokens += static_cast<uint64_t>(s.prompt_len);
      counters_.cached_tokens += static_cast<uint64_t>(s.planned);
    }
    events_.push_back({.seq = s.id, .admitted = true, .cached = s.planned});
  }
  release_expected(s);
  s.opened = false;
  const int loads = step.take_loads(s.table.found.size());
  const int count = step.rows_for(s);
  cache_.begin(s.table, s.tokens, s.planned + count, loads);
  if (!s.loads() && count > 0 && !waits_for_loads(s, step)) step.add(s, count, 0);
}

void Scheduler::preempt(Sequence& s) {
  SKIFF_CHECK(s.in_flight == 0 && s.unknown == 0);
  ++counters_.preemptions;
  reserve_ = limits_.policy.reserve;
  if (holder_ == &s) holder_ = nullptr;
  close(s);
  cache_.ask_again(s.table);
  free_slots_.push_back(s.slot);
  running_.erase(s.rank);
  waiting_.emplace(s.rank, &s);
  s.slot = -1;
  s.drafts.clear();
  s.draft_logprobs.clear();
}

}  // namespace skiff::sched

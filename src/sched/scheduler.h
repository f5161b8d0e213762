// sched/scheduler.h -- decides which sequences run next. Pure host logic: no clock, device, thread
// or model.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "kv/cache_index.h"
#include "message/step.h"
#include "sched/draft_stats.h"
#include "sched/policy.h"
#include "sched/sequence.h"

namespace skiff::sched {

class PlanBuilder;
struct Wanted;

struct Limits {
  int max_seqs = 256;        // sequences that run at a time, and the number of slots
  int max_rows = 8192;       // rows in one step
  int max_context = 32768;   // prompt and output tokens of one sequence
  int max_logit_rows = 256;  // rows with logits in one step; at least max_seqs
  int vocab = 0;             // tokens are in [0, vocab); 0: any that is not negative
  // The most candidates that one sequence may request with prompt_logprobs, over its whole prompt.
  // They are held until the prompt is computed, at 8 bytes each.
  int64_t max_prompt_candidates = int64_t{1} << 24;
  // If false, a prompt waits for a step that has room for all of it. A prompt that could never
  // count on that (longer than max_rows - max_seqs, or than max_logit_rows if prompt
  // log-probabilities are wanted) is still cut into chunks, so that rows stay bounded and nothing
  // is refused.
  bool chunked_prefill = true;
  Policy policy;
  bool generates = true;  // false: the model has no head to draw with, so every sequence is pooled
  // How many tokens are drafted for each sequence behind a chained step (StepPlan::chained), at
  // most kMostMovedBack; 0: no step can be chained.
  int chained_drafts = 0;
  int chained_reach = 0;  // positions behind such a step's rows at which the drafter computes
};

struct SchedulerStats {
  int running = 0, waiting = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0;  // counted once for each admitted sequence
  uint64_t generation_tokens = 0, preemptions = 0;
  uint64_t chained_steps = 0;
  DraftStats drafts;
  kv::TierStats tiers;
};

// Continuous batching (Orca, Yu et al. 2022) with chunked prefill (Sarathi-Serve, Agrawal et al.
// 2024). A step takes, each in order of QueueRank: one row of every sequence that decodes, then
// rows of running prompts, then new sequences. So a prompt never delays a decode by more than one
// step. New sequences start only when the blocks for all their known tokens, and a reserve for each
// running sequence, are free. Policy decides who goes before whom, and how often at most.
//
// When blocks run out, the sequence of the highest rank number that no step in flight names gives
// up its blocks and waits to be computed again from the tokens that it has. Sequences that ended
// are planned no more, and freed once no step in flight names them.
//
// Drafts (StepResult::drafts) are checked as far as that is worth its time (sched/draft_length.h).
// They follow a known token: where they promise much, a step is planned only once the one in flight
// is committed, or its sequence sits a step out; unless that step is chained. Behind a chained step
// a sequence is planned as if all its drafts were kept: where that might exceed its tokens or its
// blocks, it waits for the verdict.
//
// A sequence whose beginning lies in a lower tier of the cache (see kv/tiers.h) starts with a plan
// that loads it, or with several if that takes longer than a step of sequences that decode. Its
// rows come in a later plan, so that no others wait for the loads, or in the same one if there are
// no others. Where it must be fetched from a source first, the sequence is skipped until the source
// has answered; blocks that did not arrive are computed.
//
// Not thread-safe.
class Scheduler {
 public:
  // CHECKs 1 <= max_seqs <= max_logit_rows and that rows, context and blocks are positive. The
  // cache must outlive the scheduler.
  Scheduler(const Limits& limits, kv::CacheIndex& cache);
  ~Scheduler();
  // Returns kInvalid, with the numbers, if the sequence can never run. CHECKs that the id is new.
  // More max_tokens than the context holds is fine: the sequence then ends with kLength where the
  // context does (or where the whole cache is full of it). One that continues another is not
  // refused for its length.
  Status add(NewSequence sequence);
  void cancel(SeqId id);  // ignores an id that is unknown or has ended
  void cancel_all();
  // Returns the next step; it is empty when nothing can run, which, unless idle(), happens only
  // while a step is in flight or a tier's answer is awaited. May plan past steps still in flight. A
  // plan may have no rows, only blocks to save.
  StepPlan plan();
  // Called for the last plan, behind which tokens are drafted, before another one is asked for.
  // Returns whether it may be chained; then StepPlan::chained must be set.
  bool chain(const StepPlan& plan);
  // Applies the result of a planned step. Steps are committed in the order planned.
  void commit(const StepPlan& plan, const StepResult& result);
  std::vector<Event> take_events();  // events since the last call
  // The lower tiers of the cache. Their jobs must be taken after plan() and commit(), and may be
  // answered in any order.
  kv::Tiers& tiers() { return cache_.tiers(); }
  bool idle() const { return all_.empty() && !cache_.tiers().owes_saves(); }
  SchedulerStats stats() const;
  const Limits& limits() const { return limits_; }

 private:
  using Queue = std::map<QueueRank, Sequence*>;
  enum class PromptKind { kAny, kShort, kLong };
  // The number of prompts that are partly computed.
  struct Partial {
    int all = 0, of_long = 0;
    void add(const Sequence& s) {
      all += s.left() > 1;
      of_long += s.is_long && s.left() > 1;
    }
  };

  Status check(const NewSequence& sequence) const;
  Status check_kind(const NewSequence& sequence) const;
  bool waits_for_drafts(const PlanBuilder& step) const;
  bool has_rows_in_flight() const;
  StepPlan plan_saves();
  bool may_chain(const StepPlan& plan, size_t span) const;
  void continue_loads(PlanBuilder& step);
  bool waits_for_loads(const Sequence& s, PlanBuilder& step) const;
  bool continue_decodes(PlanBuilder& step);
  bool continue_prefills(PlanBuilder& step, PromptKind kind);
  Wanted wanted() const;
  double backlog() const;
  void admit(PlanBuilder& step);
  Partial count_partial() const;
  bool may_be_partial(const Sequence& s, const Partial& now) const;
  bool fits(const Sequence& s, int reserved) const;
  void open(Sequence& s);
  void close(Sequence& s);
  bool fetch(Sequence& s);
  void read_ahead();
  void release_expected(Sequence& s);
  int reserved_blocks() const;
  int reserve_of(const Sequence& s) const;
  QueueRank rank_of(const Sequence& s, int priority);
  void take_place(Sequence& s, SeqId of);
  bool make_room(Sequence& s, int tokens);
  Sequence* victim_for(const Sequence& s) const;
  bool wait_for_room(const Sequence& s);
  bool held_back(const Sequence& s) const;
  void start(Sequence& s, PlanBuilder& step);
  void preempt(Sequence& s);
  void absorb(Sequence& s, const Span& span, const StepResult& result, size_t i);
  static void learn_from(Sequence& s, const Span& span, const std::vector<Token>& gained);
  static void report_drafts(Sequence& s, Event& event);
  void take_token(Sequence& s, Token token);
  void end(Sequence& s, Finish finish);
  void release(Sequence& s);

  const bool has_aim_;
  const Limits limits_;
  kv::CacheIndex& cache_;
  int capacity_;  // the most tokens that one sequence can have
  std::unordered_map<SeqId, std::unique_ptr<Sequence>> all_;
  Queue waiting_, running_;  // running sequences have a slot
  std::vector<int> free_slots_;
  std::vector<Event> events_;
  // The sequence that needs blocks of sequences behind it, or null. Those behind it are not
  // planned, so that their steps in flight finish and make_room() can preempt them.
  const Sequence* holder_ = nullptr;
  std::optional<SeqId> read_ahead_;  // the sequence of the last read_ahead()
  uint64_t step_ = 0, arrivals_ = 0;
  double reserve_ = 0;  // blocks kept free for each running sequence, see Policy::reserve
  SchedulerStats counters_;
};

}  // namespace skiff::sched

// sched/sequence.h -- the scheduler's state of one sequence, private to this room.
#pragma once
#include <utility>
#include <vector>

#include "kv/cache_index.h"
#include "message/step.h"
#include "sched/draft_length.h"

namespace skiff::sched {

// The lower rank goes first. `first` is the number that Policy describes. Of two sequences with the
// same number the later arrival goes first, since the earlier one would otherwise yield less than
// it should. A rank is kept through preemption.
using QueueRank = std::pair<int64_t, int64_t>;

struct Sequence {
  SeqId id = 0;
  QueueRank rank;
  SamplingParams params;
  bool draws_alone = false;  // see Scheduler::chain
  SharedList<Token> stop_tokens;
  Pooling pooling;
  SharedList<Token> reference;
  int prompt_len = 0;
  int written = 0;        // NewSequence::written
  bool is_long = false;   // whether its prompt is long, see Policy
  bool is_large = false;  // once it runs: whether it was large when it started, see Policy
  int overtaken = 0;      // number of later sequences that started while there was no memory for
                          // this one
  int limit = 0;  // the most tokens to produce: max_tokens, or what the context has room for

  std::vector<Token> tokens;                     // prompt and output as far as the host knows them
  std::vector<Token> drafts;                     // drafts of the tokens that follow `tokens`
  std::vector<PositionLogprobs> draft_logprobs;  // those of the first drafts, if requested
  Acceptance acceptance;                         // how often its drafts were accepted
  kv::BlockTable table;
  int slot = -1;    // -1 while waiting
  int planned = 0;  // positions that steps planned so far compute, if all drafts are kept
  // The most tokens that steps in flight will sample or keep: behind a chained step all its drafts
  // count, and otherwise none does.
  int unknown = 0;
  int unsure = 0;          // drafts that its last step checks, if that is in flight and chained
  bool ahead = false;      // tokens are drafted behind that step, if so
  bool ready = false;      // the drafter has drafted behind the step before its last one
  int in_flight = 0;       // steps in flight that name this sequence
  uint64_t last_step = 0;  // the last step that names it
  int reported = 0;        // leading rows whose prompt log-probabilities are planned or reported
  bool continues = false;  // NewSequence::continues: its tokens were counted before
  bool admitted = false;
  bool expects = false;  // sources of blocks keep what it will fetch
  bool opened = false;   // a plan has told the device of its slot
  Finish finish = Finish::kNone;

  int known() const { return static_cast<int>(tokens.size()); }
  int total() const { return known() + unknown; }
  int produced() const { return known() - prompt_len; }
  int left() const { return total() - planned; }  // rows to compute before the next draw
  // Returns true while it runs and blocks of it are still to be loaded from host memory.
  bool loads() const { return slot >= 0 && !table.found.empty(); }
  bool wants_rows() const {
    return finish == Finish::kNone && produced() + unknown < limit && left() > 0 && !loads();
  }
  // Prompt log-probabilities come from rows [0, prompt_len - 1): row r predicts token r + 1.
  bool owes_report() const {
    return params.prompt_logprobs != kNoLogprobs && reported < prompt_len - 1;
  }
  // Returns the number of leading tokens that need not be computed again. At least one row must be
  // computed, for the draw or to be pooled.
  int reusable() const {
    if (!pooling.may_reuse()) return 0;
    return owes_report() ? reported : known() - 1;
  }
};

}  // namespace skiff::sched

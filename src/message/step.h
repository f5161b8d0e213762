// message/step.h -- the message from the scheduler to the device, and its answer.
#pragma once
#include <algorithm>

#include "message/request.h"

namespace skiff {

using BlockId = int32_t;
// Stands for the token that this slot sampled last in the step before or, in row j of the drafts of
// a span, for draft j that was made behind that step; both lie where Ops computes. Drafts require
// that the step before was chained (StepPlan::chained), and so does a token if that step checked
// drafts for the slot.
constexpr Token kOnDevice = -1;

struct Span {
  SeqId seq = 0;
  int slot = 0;         // this sequence's row in device-side state (last token, counts)
  int begin = 0;        // first position computed this step
  int count = 0;        // rows in this step: 1 for a decode, 1 + draft for a check, more for a
                        // prefill chunk
  int draft = 0;        // the last `draft` rows are drafts to be verified
  bool sample = false;  // false for every prefill chunk but the last
  int prompt_logprobs = kNoLogprobs;  // log-probabilities for its prompt rows
  Token next = -1;                    // the known token after the last row if `sample` is false
  // The sequence is pooled (Pooling), and the last row is its last one; `sample` is false.
  bool pool = false;
  bool pool_logits = false;          // with `pool`: the logits of that row are wanted
  int draft_logprobs = kNoLogprobs;  // with `sample`: for the drafts that a model makes behind it
  // The step before checks drafts for the slot, and the host does not know which of them are kept:
  // `begin` is where the rows stand if all are, and each that is not moves them back by one.
  bool after_drafts = false;
  bool operator==(const Span&) const = default;
};

// A slot that starts, or starts again after preemption.
struct OpenSlot {
  int slot = 0;
  SamplingParams params;
  std::vector<Token> history;     // prompt and output so far
  int prompt_len = 0;             // leading tokens of `history` that are the prompt
  SharedList<Token> stop_tokens;  // banned until min_tokens is reached
  Pooling pooling = {};           // if set, the slot has no draws
  // NewSequence::reference. It is no part of the bytes of a plan, because tokens are drafted in the
  // scheduler's process.
  SharedList<Token> reference = {};
  int written = 0;  // NewSequence::written, the last tokens of the prompt
  bool operator==(const OpenSlot&) const = default;
};

// A copy of one block, with all its layers, between the device and host memory.
struct BlockCopy {
  BlockId block = 0;
  int host = 0;
  bool operator==(const BlockCopy&) const = default;
};

// Carried out as if in this order: saves (from the device), loads (to it), then the rows. So a
// block may be reused by the plan that saves it, and read by the plan that loads it. A device loads
// beside the rows: a step waits for loads, its own or those of an earlier plan that are still under
// way, only if it names one of their blocks in `pages` or `saves`. All of them are done when it has
// its result.
struct StepPlan {
  uint64_t step = 0;
  std::vector<BlockCopy> saves, loads;
  std::vector<Span> spans;
  std::vector<Token> tokens;        // rows of all spans, end to end
  std::vector<BlockId> pages;       // block tables of all spans, end to end
  std::vector<int32_t> page_start;  // spans.size() + 1 offsets into pages
  std::vector<OpenSlot> opened;
  bool drafts = true;  // tokens that follow are drafted behind this step, if anything drafts
  // Its drafts are checked, and tokens are drafted behind it, where Ops computes: the next step may
  // be launched before the host knows either. All spans sample, and have 1 + draft rows; behind the
  // last of these there are blocks for the positions of further drafts. The drafter has drafted
  // behind the last step of each sequence.
  bool chained = false;
  // Returns 1 + k if every sequence has one row and k drafts behind it, all sample, and no prompt
  // log-probabilities are requested; else 0.
  int rows_per_seq() const {
    const int rows = spans.empty() ? 1 : spans.front().count;
    const bool uniform = std::ranges::all_of(spans, [rows](const Span& span) {
      return span.count == rows && span.draft == rows - 1 && span.sample &&
             span.prompt_logprobs == kNoLogprobs;
    });
    return uniform ? rows : 0;
  }
  bool only_decodes() const { return rows_per_seq() == 1; }
  // Returns whether log-probabilities of the drafts behind it are requested.
  bool reports_drafts() const {
    return std::ranges::any_of(spans,
                               [](const Span& s) { return s.draft_logprobs != kNoLogprobs; });
  }
  bool empty() const { return spans.empty() && saves.empty() && loads.empty(); }
  bool operator==(const StepPlan&) const = default;
};

// One entry per span of the plan, in its order; inner vectors are empty for spans that do not
// sample (or that requested no log-probabilities).
struct StepResult {
  uint64_t step = 0;
  // What its copies and rows take one after the other, and the copies alone; 0: not measured.
  double seconds = 0, copy_seconds = 0;
  std::vector<std::vector<Token>> tokens;               // per span: the drafts kept, then one more
  std::vector<std::vector<Token>> drafts;               // per span: for its next step; often empty
  std::vector<std::vector<PositionLogprobs>> logprobs;  // parallel to tokens
  std::vector<std::vector<PositionLogprobs>> prompt_logprobs;  // for begin + 1, ...
  // Per span: the vector if its sequence is pooled and the span its last one. Empty if there is no
  // such span.
  std::vector<std::vector<float>> pooled = {};
  // Per span: for its leading drafts, those of a model. Empty if no span requests them.
  std::vector<std::vector<PositionLogprobs>> draft_logprobs = {};
  bool operator==(const StepResult&) const = default;
};

}  // namespace skiff

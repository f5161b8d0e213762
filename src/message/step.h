// message/step.h -- the one message from scheduler to device, and the one back.
#pragma once
#include <algorithm>

#include "message/request.h"

namespace skiff {

using BlockId = int32_t;
// "The token that this slot sampled last step", which had no drafts for it: how many of those were
// kept, and so where the slot's next row stands, is known once that step's result is.
constexpr Token kOnDevice = -1;

struct Span {
  SeqId seq = 0;
  int slot = 0;         // this sequence's row in device-side state (last token, counts)
  int begin = 0;        // first position computed this step
  int count = 0;        // rows this step: 1 a decode, 1+draft a check, more a prefill chunk
  int draft = 0;        // the last `draft` rows are drafts to be verified
  bool sample = false;  // false for every prefill chunk but the last
  int prompt_logprobs = kNoLogprobs;  // wanted of this span's rows that lie in the prompt
  Token next = -1;                    // the known token after the last row, when sample is false
  bool operator==(const Span&) const = default;
};

// A slot that starts, or starts again after preemption.
struct OpenSlot {
  int slot = 0;
  SamplingParams params;
  std::vector<Token> history;     // prompt and output so far
  int prompt_len = 0;             // how many leading tokens of history are the prompt
  SharedList<Token> stop_tokens;  // for min_tokens
  bool operator==(const OpenSlot&) const = default;
};

// All layers of one block, between the device and a block of host memory.
struct BlockCopy {
  BlockId block = 0;
  int host = 0;
  bool operator==(const BlockCopy&) const = default;
};

// Carried out in this order: saves (from the device), loads (to it), then the rows. So a block may
// be handed out again in the plan that saves it, and read in the plan that loads it.
struct StepPlan {
  uint64_t step = 0;
  std::vector<BlockCopy> saves, loads;
  std::vector<Span> spans;
  std::vector<Token> tokens;        // rows of all spans, end to end
  std::vector<BlockId> pages;       // block tables of all spans, end to end
  std::vector<int32_t> page_start;  // spans.size() + 1 offsets into pages
  std::vector<OpenSlot> opened;
  // 1 + k where every sequence has one row and k drafts behind it, all sample, and nothing more is
  // asked about them; 0 where they differ.
  int rows_per_seq() const {
    const int rows = spans.empty() ? 1 : spans.front().count;
    const bool uniform = std::ranges::all_of(spans, [rows](const Span& span) {
      return span.count == rows && span.draft == rows - 1 && span.sample &&
             span.prompt_logprobs == kNoLogprobs;
    });
    return uniform ? rows : 0;
  }
  bool only_decodes() const { return rows_per_seq() == 1; }
  bool empty() const { return spans.empty() && saves.empty() && loads.empty(); }
  bool operator==(const StepPlan&) const = default;
};

// One entry per span of the plan, in its order; inner vectors are empty for spans that do not
// sample (or asked for no log-probabilities).
struct StepResult {
  uint64_t step = 0;
  double seconds = 0, copy_seconds = 0;    // all of it, and its saves and loads; 0: not measured
  std::vector<std::vector<Token>> tokens;  // what each span gained: drafts kept, then one more
  std::vector<std::vector<Token>> drafts;  // for each span's next turn; often empty
  std::vector<std::vector<PositionLogprobs>> logprobs;         // parallel to tokens
  std::vector<std::vector<PositionLogprobs>> prompt_logprobs;  // of positions begin+1 ..
  bool operator==(const StepResult&) const = default;
};

}  // namespace skiff

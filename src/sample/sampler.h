// sample/sampler.h -- from rows of logits to tokens and log-probabilities.
//
// Order of work for a row (message/request.h states the same for callers): log-probabilities are
// of the raw logits; then the rules of sample/rules.h edit the logits in the order of their
// table; then temperature, min_p, top_k, top_p and the draw, all inside Ops::sample.
//
// What a sequence gets is a pure function of its params, its history and its logits: not of the
// batch that it shares, nor of preemption, because the draw is numbered by the output index.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "message/step.h"
#include "ops/ops.h"
#include "sample/slot_state.h"

namespace skiff {

// One entry per row that was asked about.
struct SampleOutput {
  std::vector<Token> tokens;
  std::vector<std::optional<PositionLogprobs>> logprobs;  // set where the slot's params ask
};

// Owned and driven by the thread that drives `ops`, which must outlive it and whose device must
// be the host.
class Sampler {
 public:
  Sampler(int vocab, int max_slots, Ops& ops);

  // Starts a slot or starts it again with a longer history: the next draw is then number
  // history.size() - prompt_len. What the slot held before is forgotten.
  void open(const OpenSlot& slot);

  // Draws one token per row and counts it into its slot, as if accept() had been called.
  // logits f32 [rows, vocab] is scratch: the rules edit it in place. slots[r] is the open slot of
  // row r; a slot stands at most once. Rows may be 0. To check drafts, call once per depth with
  // the slots whose drafts have all come true so far: the outcome is what decoding would give.
  SampleOutput sample(Tensor logits, std::span<const int> slots);

  // Counts tokens that came from elsewhere into an open slot's output.
  void accept(int slot, std::span<const Token> tokens);

  // For each row of logits [rows, vocab] the known token that follows it, and the n best (clamped
  // to [0, vocab]; kAllLogprobs means all). next.size() == rows; logits are left as they are.
  std::vector<PositionLogprobs> prompt_logprobs(Tensor logits, std::span<const Token> next, int n);

 private:
  // Copies of the rows that want the same number of best tokens.
  struct RawRows {
    int top = 0;
    std::vector<int32_t> rows;
    Tensor logits;
  };

  SlotState& state(int slot);
  int clamp_top(int n) const;
  std::vector<RawRows> save_raw(Tensor logits, std::span<const int> slots);
  void edit(Tensor logits, std::span<const int> slots);
  std::vector<Token> draw(Tensor logits, std::span<const int> slots);
  void report(const RawRows& group, SampleOutput& out);

  int vocab_;
  Ops& ops_;
  std::vector<std::optional<SlotState>> slots_;
  Buffer raw_;  // what RawRows::logits point into; grows to the largest need
};

}  // namespace skiff

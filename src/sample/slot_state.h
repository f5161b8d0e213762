// sample/slot_state.h -- the state that the host keeps of one sequence for its sampling.
#pragma once
#include <span>
#include <vector>

#include "message/step.h"

namespace skiff::sample {

class SlotState {
 public:
  explicit SlotState(const OpenSlot& slot);
  void accept(Token token);  // appends an output token

  // Returns whether a rule of sample/rules.h that the host carries out, or the constraint, may
  // depend on earlier tokens: then the host must know the token of each draw before the next.
  bool looks_back() const;
  const SamplingParams& params() const { return params_; }  // without logit_bias
  const std::vector<Token>& stop_tokens() const { return stop_tokens_; }
  int output_count() const { return output_count_; }  // also the number of the next draw
  // Returns whether prompt + output end with `tokens`, which must be fewer than the tokens of the
  // longest bad word.
  bool ends_with(std::span<const Token> tokens) const;

 private:
  void remember(Token token);

  SamplingParams params_;
  SharedList<Token> stop_tokens_;
  std::vector<Token> tail_;  // the last tail_max_ tokens at least, oldest first
  size_t tail_max_ = 0;
  int output_count_ = 0;
};

}  // namespace skiff::sample

// sample/slot_state.h -- what the sampler remembers of one sequence. Size grows with the number
// of distinct tokens seen, never with the vocabulary.
#pragma once
#include <span>
#include <unordered_map>
#include <vector>

#include "message/step.h"

namespace skiff::sample {

class SlotState {
 public:
  struct Count {
    int prompt = 0, output = 0;
  };

  explicit SlotState(const OpenSlot& slot);
  void accept(Token token);  // one more output token

  // Whether a rule of sample/rules.h may look at what has been said: then each draw must know the
  // one before.
  bool looks_back() const;
  const SamplingParams& params() const { return params_; }  // without logit_bias
  const std::vector<Token>& stop_tokens() const { return stop_tokens_; }
  const std::unordered_map<Token, Count>& counts() const { return counts_; }
  int output_count() const { return output_count_; }  // also the number of the next draw
  // Whether prompt + output end with `tokens`, which are fewer than the longest bad word has.
  bool ends_with(std::span<const Token> tokens) const;

 private:
  void remember(Token token);

  SamplingParams params_;
  SharedList<Token> stop_tokens_;
  std::unordered_map<Token, Count> counts_;  // empty where no rule counts
  std::vector<Token> tail_;                  // at least the last tail_max_ tokens, oldest first
  size_t tail_max_ = 0;
  int output_count_ = 0;
  bool counting_ = false;
};

}  // namespace skiff::sample

// sample/slot_state.h -- the state that the sampler keeps of one sequence. Size grows with the
// number of distinct tokens seen, never with the vocabulary.
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
  void accept(Token token);  // appends an output token

  // Whether a rule of sample/rules.h may depend on earlier tokens: then each draw must know the
  // token of the one before.
  bool looks_back() const;
  const SamplingParams& params() const { return params_; }  // without logit_bias
  const std::vector<Token>& stop_tokens() const { return stop_tokens_; }
  const std::unordered_map<Token, Count>& counts() const { return counts_; }
  int output_count() const { return output_count_; }  // also the number of the next draw
  // Whether prompt + output end with `tokens`, which must be fewer than the tokens of the longest
  // bad word.
  bool ends_with(std::span<const Token> tokens) const;

 private:
  void remember(Token token);

  SamplingParams params_;
  SharedList<Token> stop_tokens_;
  std::unordered_map<Token, Count> counts_;  // empty if no rule counts tokens
  std::vector<Token> tail_;                  // the last tail_max_ tokens at least, oldest first
  size_t tail_max_ = 0;
  int output_count_ = 0;
  bool counting_ = false;
};

}  // namespace skiff::sample

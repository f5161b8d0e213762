// sample/rules.h -- the rules that edit logits before a draw. A rule is one function in a file of
// its own (rule_*.cc) and one line in the table of rules.cc.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "sample/edit_list.h"
#include "sample/slot_state.h"

namespace skiff::sample {

// A rule has one of these effects. They are applied in this order, whatever the order of the table:
// biases are added; the logits of tokens that have occurred are divided (if positive) or multiplied
// (if negative) by the product of all divisors, and then the rules' amounts are added; banned
// tokens become impossible. Tokens outside the vocabulary are dropped afterwards, so rules may pass
// on a request's values unchecked.
struct Rule {
  std::string_view name;
  // Appends the tokens that this draw must not produce.
  void (*ban)(const SlotState& slot, std::vector<Token>& banned) = nullptr;
  // Appends the edits that hold for all draws of a sequence.
  void (*bias)(const SamplingParams& params, std::vector<Edit>& biases) = nullptr;
  float (*divisor)(const SamplingParams& params) = nullptr;
  // Returns what is added to the logit of a token that has occurred `count` times.
  float (*amount)(const SamplingParams& params, const SlotState::Count& count) = nullptr;
};
// The rules, in the order in which the documentation names them.
std::span<const Rule> rules();

void ban_bad_words(const SlotState& slot, std::vector<Token>& banned);
void hold_back_stop(const SlotState& slot, std::vector<Token>& banned);
void bias_logits(const SamplingParams& params, std::vector<Edit>& biases);
float repetition_divisor(const SamplingParams& params);
float presence_amount(const SamplingParams& params, const SlotState::Count& count);

// The combined result of all rules, for tokens in [0, vocab).
std::vector<Edit> biases_of(const SamplingParams& params, int vocab);  // by rising token
std::vector<Token> banned_of(const SlotState& slot, int vocab);        // in rising order
float divisor_of(const SamplingParams& params);
float amount_of(const SamplingParams& params, const SlotState::Count& count);

}  // namespace skiff::sample

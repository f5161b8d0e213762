// sample/rules.h -- the rules that edit logits before a draw. A rule is one function in a file of
// its own (rule_*.cc) and one line in the table of rules.cc.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "sample/edit_list.h"
#include "sample/slot_state.h"

namespace skiff::sample {

// What a rule does is one of these. They are applied in this order, whatever the order of the
// table: biases are added; logits of what has been said are divided (positive) or multiplied
// (negative) by the product of all divisors, and then what rules add for it is added; what is
// banned is impossible. Tokens outside the vocabulary are dropped afterwards, so rules may pass on
// what a request says.
struct Rule {
  std::string_view name;
  // Adds what this draw must not be.
  void (*ban)(const SlotState& slot, std::vector<Token>& banned) = nullptr;
  // Adds what holds for all draws of a sequence.
  void (*bias)(const SamplingParams& params, std::vector<Edit>& biases) = nullptr;
  float (*divisor)(const SamplingParams& params) = nullptr;
  // What is added to the logit of a token that has been said `count` times.
  float (*amount)(const SamplingParams& params, const SlotState::Count& count) = nullptr;
};
// Their order is that of the names in the documentation.
std::span<const Rule> rules();

void ban_bad_words(const SlotState& slot, std::vector<Token>& banned);
void hold_back_stop(const SlotState& slot, std::vector<Token>& banned);
void bias_logits(const SamplingParams& params, std::vector<Edit>& biases);
float repetition_divisor(const SamplingParams& params);
float presence_amount(const SamplingParams& params, const SlotState::Count& count);

// What all rules say, for tokens of [0, vocab).
std::vector<Edit> biases_of(const SamplingParams& params, int vocab);  // by rising token
std::vector<Token> banned_of(const SlotState& slot, int vocab);        // rising
float divisor_of(const SamplingParams& params);
float amount_of(const SamplingParams& params, const SlotState::Count& count);

}  // namespace skiff::sample

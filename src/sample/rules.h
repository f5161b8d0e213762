// sample/rules.h -- the rules that edit logits before a draw. A rule is one function in a file of
// its own (rule_*.cc) and one line in the table of rules.cc.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "sample/edit_list.h"
#include "sample/slot_state.h"

namespace skiff::sample {

// What is done to the logit of a token that the sequence has seen: it is divided if positive, else
// multiplied; where its output contains the token, `once` is then subtracted, and `each` for every
// time.
struct Penalty {
  float divide = 1, once = 0, each = 0;
  bool counts_prompt() const { return divide != 1; }
  bool any() const { return *this != Penalty{}; }
  bool operator==(const Penalty&) const = default;
};

// A rule has one of these effects. They are applied in this order, whatever the order of the table:
// biases are added; the logits of tokens that have occurred are penalized, by the product of all
// divisors first and then by the sums of the rules' amounts; banned tokens become impossible.
// Tokens outside the vocabulary are dropped afterwards, so rules may pass on a request's values
// unchecked.
struct Rule {
  std::string_view name;
  // Appends the tokens that this draw must not produce.
  void (*ban)(const SlotState& slot, std::vector<Token>& banned) = nullptr;
  // Appends the edits that hold for all draws of a sequence.
  void (*bias)(const SamplingParams& params, std::vector<Edit>& biases) = nullptr;
  // Multiplies the divisor, or adds to the amounts.
  void (*penalize)(const SamplingParams& params, Penalty& penalty) = nullptr;
};
// The rules, in the order in which the documentation names them.
std::span<const Rule> rules();

void ban_bad_words(const SlotState& slot, std::vector<Token>& banned);
void hold_back_stop(const SlotState& slot, std::vector<Token>& banned);
void bias_logits(const SamplingParams& params, std::vector<Edit>& biases);
void penalize_repetition(const SamplingParams& params, Penalty& penalty);
void penalize_presence(const SamplingParams& params, Penalty& penalty);

// The combined result of all rules, for tokens in [0, vocab).
std::vector<Edit> biases_of(const SamplingParams& params, int vocab);  // by rising token
std::vector<Token> banned_of(const SlotState& slot, int vocab);        // in rising order
Penalty penalty_of(const SamplingParams& params);

}  // namespace skiff::sample

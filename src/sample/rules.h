// sample/rules.h -- the rules that edit logits before a draw. A rule is one function in a file of
// of rules/ and one line in the table of rules.cc.
#pragma once
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "ops/batch.h"
#include "sample/slot_state.h"

namespace skiff {

// Collects the edits of a batch of rows in the layout of LogitEdits. Tokens outside
// [0, vocab) are dropped, so rules may pass on what a request says.
class EditList {
 public:
  explicit EditList(int vocab) : vocab_(vocab) {}
  void ban(Token token) { push(token, 1, -std::numeric_limits<float>::infinity()); }
  void add(Token token, float amount) { push(token, 1, amount); }
  void divide(Token token, float divisor) { push(token, divisor, 0); }
  void end_row() { row_start_.push_back(static_cast<int32_t>(token_.size())); }
  bool empty() const { return token_.empty(); }
  LogitEdits view();  // points into this; valid until the next change

 private:
  void push(Token token, float divide, float add);

  int vocab_;
  std::vector<int32_t> row_start_{0};
  std::vector<int32_t> token_;
  std::vector<float> divide_, add_;
};

struct Rule {
  std::string_view name;
  void (*apply)(const SlotState& slot, EditList& edits);
};
// In order of application; the order is part of the contract.
std::span<const Rule> rules();

void ban_bad_words(const SlotState& slot, EditList& edits);
void hold_back_stop(const SlotState& slot, EditList& edits);
void bias_logits(const SlotState& slot, EditList& edits);
void discourage_repetition(const SlotState& slot, EditList& edits);
void penalize_presence(const SlotState& slot, EditList& edits);

}  // namespace skiff

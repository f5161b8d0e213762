// sample/slot_edits.h -- the edits of one sequence that depend on its tokens so far, updated with
// every token.
#pragma once
#include <unordered_map>
#include <vector>

#include "sample/edit_list.h"
#include "sample/slot_state.h"

namespace skiff::sample {

class SlotEdits {
 public:
  SlotEdits(const SlotState& slot, int vocab);
  // Must be called after each token that the slot accepts, with that token.
  void accepted(const SlotState& slot, Token token);
  EditList& list() { return list_; }
  float divisor() const { return divisor_; }  // divisor of the logits that the list names

 private:
  void refresh_bans(const SlotState& slot);
  void refresh(const SlotState& slot, Token token);
  void remove(Token token);

  int vocab_;
  float divisor_;
  EditList list_;
  std::unordered_map<Token, size_t> place_;  // each token's index in the list
  std::vector<Token> banned_;                // in rising order
};

}  // namespace skiff::sample

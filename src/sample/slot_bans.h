// sample/slot_bans.h -- the tokens that rules ban in one sequence, as a list of edits that is
// updated with every token.
#pragma once
#include <unordered_map>
#include <vector>

#include "sample/edit_list.h"
#include "sample/slot_state.h"

namespace skiff::sample {

class SlotBans {
 public:
  SlotBans(const SlotState& slot, int vocab);
  // Must be called after each token that the slot accepts.
  void update(const SlotState& slot);
  EditList& list() { return list_; }
  const EditList& list() const { return list_; }

 private:
  void ban(Token token);
  void allow(Token token);

  int vocab_;
  EditList list_;
  std::unordered_map<Token, size_t> place_;  // each token's index in the list
  std::vector<Token> banned_;                // in rising order
};

}  // namespace skiff::sample

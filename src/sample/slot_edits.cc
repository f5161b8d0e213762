#include "sample/slot_edits.h"

#include <algorithm>
#include <limits>

#include "sample/rules.h"

namespace skiff::sample {

SlotEdits::SlotEdits(const SlotState& slot, int vocab)
    : vocab_(vocab), divisor_(divisor_of(slot.params())) {
  for (const auto& [token, count] : slot.counts()) refresh(slot, token);
  refresh_bans(slot);
}

void SlotEdits::accepted(const SlotState& slot, Token token) {
  if (!slot.counts().empty()) refresh(slot, token);
  refresh_bans(slot);
}

void SlotEdits::refresh_bans(const SlotState& slot) {
  std::vector<Token> changed, now = banned_of(slot, vocab_);
  std::ranges::set_symmetric_difference(now, banned_, std::back_inserter(changed));
  banned_ = std::move(now);
  for (const Token token : changed) refresh(slot, token);
}

// Updates the list's entry for the token to what the rules say now.
void SlotEdits::refresh(const SlotState& slot, Token token) {
  if (token < 0 || token >= vocab_) return;
  Edit edit{.token = token};
  if (std::ranges::binary_search(banned_, token)) {
    edit.add = -std::numeric_limits<float>::infinity();
  } else {
    const auto seen = slot.counts().find(token);
    if (seen == slot.counts().end()) return remove(token);
    edit.add = amount_of(slot.params(), seen->second);
    if (edit.add == 0 && divisor_ == 1) return remove(token);
  }
  const auto [at, added] = place_.try_emplace(token, list_.entries().size());
  if (added)
    list_.push(edit);
  else if (list_.entries()[at->second] != edit)
    list_.set(at->second, edit);
}

// Removes the token's entry; the last entry takes its place.
void SlotEdits::remove(Token token) {
  const auto at = place_.find(token);
  if (at == place_.end()) return;
  const size_t index = at->second;
  place_.erase(at);
  const Edit last = list_.entries().back();
  if (last.token != token) {
    list_.set(index, last);
    place_[last.token] = index;
  }
  list_.pop();
}

}  // namespace skiff::sample

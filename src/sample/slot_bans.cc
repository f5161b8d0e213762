#include "sample/slot_bans.h"

#include <algorithm>
#include <limits>

#include "sample/rules.h"

namespace skiff::sample {

SlotBans::SlotBans(const SlotState& slot, int vocab) : vocab_(vocab) { update(slot); }

void SlotBans::update(const SlotState& slot) {
  std::vector<Token> changed, now = banned_of(slot, vocab_);
  std::ranges::set_symmetric_difference(now, banned_, std::back_inserter(changed));
  banned_ = std::move(now);
  for (const Token token : changed) {
    if (place_.contains(token))
      allow(token);
    else
      ban(token);
  }
}

void SlotBans::ban(Token token) {
  place_[token] = list_.entries().size();
  list_.push({.token = token, .add = -std::numeric_limits<float>::infinity()});
}

// The last entry takes the place of the token's.
void SlotBans::allow(Token token) {
  const auto at = place_.find(token);
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

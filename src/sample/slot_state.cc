#include "sample/slot_state.h"

#include <algorithm>

#include "base/check.h"

namespace skiff::sample {

SlotState::SlotState(const OpenSlot& slot) : params_(slot.params), stop_tokens_(slot.stop_tokens) {
  const auto prompt_len = static_cast<size_t>(slot.prompt_len);
  SKIFF_CHECK(slot.prompt_len >= 0 && prompt_len <= slot.history.size(), "{} of {}",
              slot.prompt_len, slot.history.size());
  params_.logit_bias = {};  // logit_bias may be long; it is kept as a list (sample/rules.h)
  for (const std::vector<Token>& word : params_.bad_words) {
    if (!word.empty()) tail_max_ = std::max(tail_max_, word.size() - 1);
  }
  for (size_t i = 0; i < prompt_len; ++i) remember(slot.history[i]);
  for (size_t i = prompt_len; i < slot.history.size(); ++i) accept(slot.history[i]);
}

void SlotState::accept(Token token) {
  remember(token);
  ++output_count_;
}

bool SlotState::looks_back() const {
  return tail_max_ > 0 || output_count_ < params_.min_tokens || params_.constraint != nullptr;
}

bool SlotState::ends_with(std::span<const Token> tokens) const {
  SKIFF_CHECK(tokens.size() <= tail_max_);
  if (tokens.size() > tail_.size()) return false;
  return std::equal(tokens.begin(), tokens.end(), tail_.end() - static_cast<long>(tokens.size()));
}

// The tail is cut only when it has doubled, so that each token costs O(1) on average.
void SlotState::remember(Token token) {
  if (tail_max_ == 0) return;
  tail_.push_back(token);
  if (tail_.size() < 2 * tail_max_) return;
  tail_.erase(tail_.begin(), tail_.end() - static_cast<long>(tail_max_));
}

}  // namespace skiff::sample

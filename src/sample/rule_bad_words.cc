#include "sample/rules.h"

namespace skiff::sample {

// Only the last token of a word is banned, and only when the tokens before it are the latest of the
// sequence; a word of one token is always banned.
void ban_bad_words(const SlotState& slot, std::vector<Token>& banned) {
  for (const std::vector<Token>& word : slot.params().bad_words) {
    if (word.empty()) continue;
    if (slot.ends_with(std::span(word).first(word.size() - 1))) banned.push_back(word.back());
  }
}

}  // namespace skiff::sample

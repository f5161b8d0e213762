#include "text/char_tokens.h"

#include "base/utf8.h"

namespace skiff::text {

CharTokens::CharTokens(const TokenIndex& vocab) : pages_(kCharacters / kPage), tokens_(kPage, -1) {
  for (size_t i = 0; i < vocab.size(); ++i) {
    const std::string_view text = vocab.text(i);
    if (text.empty() || utf8_length(text) != static_cast<int>(text.size())) continue;
    size_t at = 0;
    const char32_t c = utf8_next(text, &at);
    uint32_t& page = pages_[c / kPage];
    if (page == 0) {
      page = static_cast<uint32_t>(tokens_.size() / kPage);
      tokens_.resize(tokens_.size() + kPage, -1);
    }
    tokens_[page * kPage + c % kPage] = vocab.id(i);
  }
}

}  // namespace skiff::text

// serve/service/special_text.h -- keeps the text of users and tools from becoming special tokens,
// however it is spelled.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer.h"

namespace skiff::service {

// A template mixes its own special tokens with message text, and the tokenizer that reads the
// result cannot tell them apart. So a mark that no client can guess is inserted into every spelling
// of a special token in messages, and the rendered text is tokenized in the pieces between marks:
// no piece has the whole spelling. Text without such spellings is not changed. Immutable;
// thread-safe.
class SpecialText {
 public:
  explicit SpecialText(const text::Tokenizer& tokenizer);

  // Returns the conversation with marks in the messages of users and tools; nullopt if there is
  // nothing to mark.
  std::optional<text::Conversation> marked(const text::Conversation& conversation) const;
  // Returns the tokens of a rendered text without its marks.
  std::vector<int32_t> encode(const text::Tokenizer& tokenizer, std::string_view text,
                              const text::EncodeOptions& options) const;

 private:
  void append_marked(std::string_view text, std::string& out) const;

  text::AddedTokens special_;
  std::string mark_;
};

}  // namespace skiff::service

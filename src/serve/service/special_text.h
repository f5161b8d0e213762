// serve/service/special_text.h -- text of a conversation that must stay text: what a user or a tool
// wrote never becomes a special token, however it is spelled.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer.h"

namespace skiff {

// A template mixes its own special tokens with message text, and the tokenizer that reads the
// result cannot tell them apart. So special tokens in messages are cut by a mark that no client can
// guess, and the rendered text is tokenized in the pieces between marks: no piece holds the whole
// spelling. Text without such spellings is not touched. Immutable; safe from any thread.
class SpecialText {
 public:
  explicit SpecialText(const Tokenizer& tokenizer);

  // The conversation with marks in the content of what users wrote and tools returned; nullopt if
  // there was nothing to mark.
  std::optional<Conversation> marked(const Conversation& conversation) const;
  // Tokens of a rendered text, marks left out.
  std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text,
                              const EncodeOptions& options) const;

 private:
  void append_marked(std::string_view text, std::string& out) const;

  AddedTokens special_;
  std::string mark_;
};

}  // namespace skiff

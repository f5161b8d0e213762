// grammar/matching_testing.h -- constraints judged byte by byte, for tests.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"

namespace skiff::grammar::testing {

// Every byte is a token; so are the words. The last token ends a text.
inline std::shared_ptr<const Vocabulary> byte_vocabulary(std::vector<std::string> words = {}) {
  std::vector<std::string> pieces;
  pieces.reserve(257 + words.size());
  for (int byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
  pieces.insert(pieces.end(), words.begin(), words.end());
  pieces.emplace_back();
  const auto end = static_cast<int32_t>(pieces.size() - 1);
  return std::make_shared<Vocabulary>(std::move(pieces), end + 7, std::vector<int32_t>{end});
}

// Every byte is a token; from 256 on come special tokens, by their written form. The last token
// ends a text.
inline std::shared_ptr<const Vocabulary> with_special(const std::vector<std::string>& special) {
  std::vector<std::string> marks;
  marks.reserve(special.size());
  for (const std::string& written : special) marks.push_back(mark_of(written));
  return byte_vocabulary(std::move(marks));
}

inline bool accepts(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Matcher matcher(grammar);
  for (const char c : text)
    if (!matcher.accept(static_cast<uint8_t>(c))) return false;
  return matcher.is_complete();
}

inline Result<std::shared_ptr<const Grammar>> compiled(ConstraintKind kind, std::string_view text) {
  return compile({.kind = kind, .text = std::string(text)}, byte_vocabulary());
}

inline Result<std::shared_ptr<const Grammar>> schema(std::string_view text) {
  return compiled(ConstraintKind::kJsonSchema, text);
}

}  // namespace skiff::grammar::testing

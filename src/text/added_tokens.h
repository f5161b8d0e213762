// text/added_tokens.h -- finds special tokens and the other "added tokens" of tokenizer files,
// which are recognised in a text before it is normalized or split.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/string_map.h"

namespace skiff::text {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;
  bool normalized = false;   // matched in normalized text, with its content normalized as well
  bool lstrip = false;       // the match includes the white space before it
  bool rstrip = false;       // the match includes the white space after it
  bool single_word = false;  // matches only where no word character touches it
  // Matches only right behind another token. No file sets this; see sentencepiece_family.h.
  bool glued = false;
};

// Reads one entry of "added_tokens" or "added_tokens_decoder"; throws LoadError. The id is `id` if
// that is not negative, else the entry's own.
AddedToken read_added_token(const Fields& entry, int32_t id);

struct TextSegment {
  std::string_view text;
  int32_t token = -1;  // -1: plain text
};

// Finds added tokens in texts: leftmost first, then longest. Immutable once built.
class AddedTokens {
 public:
  // `content` is the text to look for. An empty or repeated content is ignored.
  void add(const AddedToken& token, std::string content);
  bool empty() const { return by_content_.empty(); }

  // Appends the segments of `text` (valid UTF-8) in order; none is empty. Without `parse_special`
  // the texts of special tokens stay text.
  void split(std::string_view text, bool parse_special, std::vector<TextSegment>& out) const;

 private:
  struct Entry {
    std::string content;
    int32_t id;
    bool special, lstrip, rstrip, single_word, glued;
  };
  const Entry* match_at(std::string_view text, size_t at) const;

  StringMap<Entry> by_content_;
  std::array<std::vector<size_t>, 256>
      lengths_;  // lengths of contents by first byte, the longest first
};

}  // namespace skiff::text

// text/added_tokens.h -- tokens whose text is recognised before anything else is done to a text:
// special tokens and the other "added tokens" of tokenizer files.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/string_map.h"

namespace skiff {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;
  bool normalized = false;   // matched in normalized text, with its content normalized as well
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool single_word = false;  // only where no word character touches it
  bool glued = false;        // only right behind another token (of no file; see
                             // sentencepiece_family.h)
};

// One entry of "added_tokens" or "added_tokens_decoder"; throws LoadError. The id is `id` if that
// is not negative, else the entry's own.
AddedToken read_added_token(const Fields& entry, int32_t id);

struct TextSegment {
  std::string_view text;
  int32_t token = -1;  // -1: plain text
};

// Finds added tokens in texts: leftmost first, then longest. Immutable once built.
class AddedTokens {
 public:
  // `content` is what to look for. An empty or repeated content is ignored.
  void add(const AddedToken& token, std::string content);
  bool empty() const { return by_content_.empty(); }

  // Appends the segments of `text` (valid UTF-8) in order, none empty. Without `parse_special`
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
  std::array<std::vector<size_t>, 256> lengths_;  // by first byte; the longest first
};

}  // namespace skiff

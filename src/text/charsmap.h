// text/charsmap.h -- SentencePiece's precompiled character map: the replacements of strings in a
// text, as a double-array trie (Aoe 1989; the layout of darts-clone) followed by the replacement
// texts.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace skiff::text {

// Returns whether every walk through the map stays within it for any text.
bool is_sound_charsmap(std::string_view bytes);

// Immutable; safe from any thread.
class Charsmap {
 public:
  // Returns kInvalid unless the map is sound (is_sound_charsmap) and not empty.
  static Result<Charsmap> read(std::string_view bytes);

  // Normalizes as the "Precompiled" normalizer does: every grapheme cluster (UAX #29) shorter than
  // 6 bytes is looked up as a whole and, where it is not found, character by character.
  std::string apply(std::string_view text) const;
  // Returns the largest factor by which a text may grow.
  double growth() const { return growth_; }

 private:
  // Returns the replacement for the shortest entry that `text` begins with.
  std::optional<std::string_view> find(std::string_view text) const;
  void apply_characters(std::string_view cluster, std::string& out) const;

  std::vector<uint32_t> trie_;
  std::string texts_;  // each ends with a NUL
  double growth_ = 1;
};

}  // namespace skiff::text

// text/charsmap.h -- SentencePiece's precompiled character map: which stretches of a text become
// which others, as a double-array trie (Aoe 1989; the layout of darts-clone) before their texts.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace skiff {

// Whether every step through the map stays within it, whatever the text.
bool is_sound_charsmap(std::string_view bytes);

// Immutable; safe from any thread.
class Charsmap {
 public:
  // kInvalid unless is_sound_charsmap and not empty.
  static Result<Charsmap> read(std::string_view bytes);

  // As the "Precompiled" normalizer does it: every grapheme cluster (UAX #29) shorter than 6 bytes
  // is looked up, then, where it is not found, each of its characters.
  std::string apply(std::string_view text) const;
  // How much longer a text may become, at most.
  double growth() const { return growth_; }

 private:
  // What the shortest entry that `text` begins with becomes.
  std::optional<std::string_view> find(std::string_view text) const;
  void apply_characters(std::string_view cluster, std::string& out) const;

  std::vector<uint32_t> trie_;
  std::string texts_;  // each ends with a NUL
  double growth_ = 1;
};

}  // namespace skiff

#include "text/charsmap.h"

#include <algorithm>
#include <cstring>

#include "base/utf8.h"
#include "text/unicode.h"

namespace skiff::text {
namespace {

// A unit either leads to other units, at its own index xor offset xor the next byte, which must
// exist, or is a leaf with the top bit set and a value. A unit reached by a byte repeats that byte
// as its label.
constexpr uint32_t kLeaf = 1u << 31;
size_t offset_of(uint32_t unit) { return size_t{unit >> 10} << ((unit & 1u << 9) >> 6); }
bool has_leaf(uint32_t unit) { return unit >> 8 & 1; }
uint32_t label_of(uint32_t unit) { return unit & (kLeaf | 0xFF); }

uint32_t load_u32(std::string_view bytes, size_t index) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + 4 * index, 4);
  return value;
}

bool is_sound_trie(std::string_view trie, size_t targets) {
  const size_t units = trie.size() / 4;
  if (units == 0 || trie.size() % 4 != 0) return false;
  for (size_t i = 0; i < units; ++i) {
    const uint32_t unit = load_u32(trie, i);
    if ((unit & kLeaf) && i > 0) continue;  // the root is never a leaf: its label is not read
    const size_t child = i ^ offset_of(unit);
    if ((child | 0xFF) >= units) return false;
    if (has_leaf(unit) && (load_u32(trie, child) & ~kLeaf) >= targets) return false;
  }
  return true;
}

size_t longest_text(std::string_view texts) {
  size_t longest = 0;
  for (size_t begin = 0, end; begin < texts.size(); begin = end + 1) {
    end = texts.find('\0', begin);
    longest = std::max(longest, end - begin);
  }
  return longest;
}

}  // namespace

// The map is the size of the trie, the trie, then the texts.
bool is_sound_charsmap(std::string_view bytes) {
  if (bytes.empty()) return true;
  if (bytes.size() <= 4) return false;
  const size_t trie = load_u32(bytes, 0);
  if (trie >= bytes.size() - 4) return false;
  const std::string_view texts = bytes.substr(4 + trie);
  return texts.back() == '\0' && is_valid_utf8(texts) &&
         is_sound_trie(bytes.substr(4, trie), texts.size());
}

Result<Charsmap> Charsmap::read(std::string_view bytes) {
  if (bytes.empty() || !is_sound_charsmap(bytes))
    return Error{Code::kInvalid, "precompiled_charsmap is damaged"};
  Charsmap out;
  const size_t units = load_u32(bytes, 0) / 4;
  for (size_t i = 0; i < units; ++i) out.trie_.push_back(load_u32(bytes.substr(4), i));
  out.texts_ = bytes.substr(4 + 4 * units);
  out.growth_ = static_cast<double>(std::max<size_t>(1, longest_text(out.texts_)));
  return out;
}

std::optional<std::string_view> Charsmap::find(std::string_view text) const {
  size_t at = offset_of(trie_[0]);
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte == 0) return std::nullopt;
    at ^= byte;
    const uint32_t unit = trie_[at];
    if (label_of(unit) != byte) return std::nullopt;
    at ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    const char* found = texts_.c_str() + (trie_[at] & ~kLeaf);
    // A damaged map may point into a character, but the output must stay valid UTF-8.
    if ((static_cast<uint8_t>(*found) & 0xC0) == 0x80) return std::nullopt;
    return std::string_view(found);
  }
  return std::nullopt;
}

void Charsmap::apply_characters(std::string_view cluster, std::string& out) const {
  for (size_t at = 0, next = 0; at < cluster.size(); at = next) {
    utf8_next(cluster, &next);
    const std::string_view character = cluster.substr(at, next - at);
    out += find(character).value_or(character);
  }
}

std::string Charsmap::apply(std::string_view text) const {
  constexpr size_t kShort = 6;
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t end = grapheme_end(text, at);
    const std::string_view cluster = text.substr(at, end - at);
    const auto whole = cluster.size() < kShort ? find(cluster) : std::nullopt;
    whole ? static_cast<void>(out += *whole) : apply_characters(cluster, out);
    at = end;
  }
  return out;
}

}  // namespace skiff::text

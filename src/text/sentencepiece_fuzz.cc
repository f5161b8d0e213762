// Takes any bytes as a SentencePiece model: they are refused, or give a tokenizer that encodes and
// decodes. The input is used as it is, and as edits of a small valid model, which random bytes
// would hardly ever form.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/sentencepiece_tokenizer.h"

namespace {

// `value` has fewer than 16384 bytes: its size is a varint of two.
std::string bytes(char field, const std::string& value) {
  const auto low = static_cast<char>((value.size() & 0x7F) | 0x80);
  const auto high = static_cast<char>(value.size() >> 7);
  return std::string{static_cast<char>(field << 3 | 2), low, high} + value;
}

std::string number(char field, char value) { return {static_cast<char>(field << 3), value}; }

std::string piece(const std::string& text, char score, char type) {
  // The score is a float whose highest byte is `score`: -0.0, -2.0 and the like.
  const std::string points{2 << 3 | 5, 0, 0, 0, score};
  return bytes(1, bytes(1, text) + points + number(3, type));
}

// A model of type `type` (BPE or unigram) whose character map replaces "a" by "b".
std::string small_model(char type) {
  std::string map(4 + 2048, '\0');
  map[1] = 8;                      // 2048 bytes of units
  map[4 + 2] = 4;                  // the root leads to 256
  map[4 + 4 * (256 + 'a')] = 'a';  // whose 'a' has a leaf at its place ^ 3
  map[4 + 4 * (256 + 'a') + 1] = 1 | 3 << 2;
  map[4 + 4 * (256 + ('a' ^ 3)) + 3] = '\x80';
  map += std::string("b\0", 2);
  const std::string normal = bytes(1, "n") + bytes(2, map) + number(3, 1) + number(4, 1);
  return piece("<unk>", '\0', 2) + piece("<s>", '\0', 3) + piece("\xE2\x96\x81", '\xC0', 1) +
         piece("b", '\xC0', 1) + piece("bb", '\xBF', 1) + piece("<u>", '\0', 4) +
         bytes(2, number(3, type)) + bytes(3, normal);
}

// Every three bytes of the input write one byte at one offset.
std::string edited(std::string model, std::string_view edits) {
  for (; edits.size() >= 3; edits.remove_prefix(3)) {
    const size_t at = static_cast<uint8_t>(edits[0]) << 8 | static_cast<uint8_t>(edits[1]);
    model[at % model.size()] = edits[2];
  }
  return model;
}

bool use(const std::string& model) {
  const auto tokenizer = skiff::text::parse_sentencepiece(model, {}, "fuzz");
  if (!tokenizer) return false;
  const auto ids = (*tokenizer)->encode(" ab aa<s>caf\xC3\xA9\n<u>\xFF", {});
  for (const int32_t id : ids) (*tokenizer)->piece(id);
  (*tokenizer)->decode(ids, true);
  (*tokenizer)->decode(ids, false);
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  use(std::string(input));
  const bool sound = use(edited(small_model(1 + static_cast<char>(size % 2)), input));
  SKIFF_CHECK(sound || size >= 3, "the small model itself is refused");
  return 0;
}

#include "text/byte_level.h"

#include <array>

#include "base/utf8.h"
#include "text/utf8_fast.h"

namespace skiff::text {
namespace {

// Printable Latin-1 characters stand for themselves; the other 68 bytes, in order, are U+0100 on.
struct Alphabet {
  static constexpr char32_t kEnd = 0x100 + 68;
  std::array<char32_t, 256> character{};
  std::array<int, kEnd> byte{};

  Alphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (char32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      character[b] = printable ? b : next++;
      byte[character[b]] = static_cast<int>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet table;
  return table;
}

}  // namespace

bool append_bytes_from_alphabet(std::string_view written, std::string& out) {
  const Alphabet& table = alphabet();
  for (size_t i = 0; i < written.size();) {
    const char32_t c = utf8_take(written, &i);
    if (c >= Alphabet::kEnd || table.byte[c] < 0) return false;
    out += static_cast<char>(table.byte[c]);
  }
  return true;
}

std::optional<std::string> bytes_from_alphabet(std::string_view written) {
  std::string out;
  if (!append_bytes_from_alphabet(written, out)) return std::nullopt;
  return out;
}

std::string alphabet_from_bytes(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) utf8_append(out, alphabet().character[static_cast<uint8_t>(c)]);
  return out;
}

}  // namespace skiff::text

#include "base/utf8.h"

#include <algorithm>

#include "base/ascii.h"

namespace skiff {
namespace {

// RFC 3629 section 4 limits the second byte to [low, high], which excludes overlong forms,
// surrogates and values above U+10FFFF.
struct Lead {
  int length;
  uint8_t low, high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte >= 0xC2 && byte <= 0xDF) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// Counts the leading bytes of `text` that form a valid, possibly unfinished character.
size_t valid_bytes(std::string_view text, const Lead& lead) {
  size_t i = 1;
  for (; i < static_cast<size_t>(lead.length) && i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) break;
  }
  return i;
}

}  // namespace

int utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const Lead lead = lead_of(static_cast<uint8_t>(text[0]));
  if (lead.length == 0) return -1;
  const size_t valid = valid_bytes(text, lead);
  if (valid == static_cast<size_t>(lead.length)) return lead.length;
  return valid == text.size() ? 0 : -1;
}

bool is_valid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (eight_ascii(text, i)) {
      i += 8;
      continue;
    }
    const int length = utf8_length(text.substr(i));
    if (length <= 0) return false;
    i += static_cast<size_t>(length);
  }
  return true;
}

char32_t utf8_next(std::string_view text, size_t* pos) {
  const int length = utf8_length(text.substr(*pos));
  const auto first = static_cast<uint8_t>(text[*pos]);
  if (length <= 0) {
    ++*pos;
    return 0xFFFD;
  }
  char32_t code = length == 1 ? first : first & (0xFF >> (length + 1));
  for (int i = 1; i < length; ++i)
    code = code << 6 | (static_cast<uint8_t>(text[*pos + static_cast<size_t>(i)]) & 0x3F);
  *pos += static_cast<size_t>(length);
  return code;
}

void utf8_append(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::string utf8_sanitized(std::string_view bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size();) {
    const std::string_view rest = bytes.substr(i);
    const int length = utf8_length(rest);
    if (length > 0) {
      out += rest.substr(0, static_cast<size_t>(length));
      i += static_cast<size_t>(length);
      continue;
    }
    out += "\xEF\xBF\xBD";
    const Lead lead = lead_of(static_cast<uint8_t>(rest[0]));
    i += lead.length == 0 ? 1 : valid_bytes(rest, lead);
  }
  return out;
}

}  // namespace skiff

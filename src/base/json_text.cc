#include "base/json_text.h"

#include "base/utf8.h"

namespace skiff {
namespace {

bool needs_escape(unsigned char c) { return c < 0x20 || c == '"' || c == '\\'; }

void append_escape(std::string& out, unsigned char c) {
  static constexpr char kHex[] = "0123456789abcdef";
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      out += "\\u00";
      out += kHex[c >> 4];
      out += kHex[c & 15];
  }
}

void append_escaped(std::string& out, std::string_view text) {
  size_t plain = 0;  // start of the current run of characters that need no escape
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (!needs_escape(c)) continue;
    out.append(text, plain, i - plain);
    append_escape(out, c);
    plain = i + 1;
  }
  out.append(text, plain);
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  if (is_valid_utf8(text))
    append_escaped(out, text);
  else
    append_escaped(out, utf8_sanitized(text));
  out += '"';
}

}  // namespace skiff

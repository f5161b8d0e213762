#include "text/answer/python_literal.h"

#include <charconv>

#include "base/json.h"
#include "base/json_text.h"
#include "base/utf8.h"

namespace skiff::answer {
namespace {

constexpr int kMaxDepth = 64;

class Converter {
 public:
  explicit Converter(std::string_view text) : rest_(text) {}

  std::optional<std::string> convert() {
    skip_blanks();
    if (!value(0)) return std::nullopt;
    skip_blanks();
    if (!rest_.empty()) return std::nullopt;
    return std::move(out_);
  }

 private:
  void skip_blanks() {
    while (!rest_.empty() && std::string_view(" \t\r\n").find(rest_.front()) != rest_.npos)
      rest_.remove_prefix(1);
  }
  bool take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool value(int depth) {
    if (depth > kMaxDepth || rest_.empty()) return false;
    const char first = rest_.front();
    if (first == '"' || first == '\'') return string();
    if (first == '[' || first == '(') return list(first == '[' ? ']' : ')', depth);
    if (first == '{') return dict(depth);
    return word();
  }

  bool list(char end, int depth) {
    rest_.remove_prefix(1);
    out_ += '[';
    for (bool any = false;; any = true) {
      skip_blanks();
      if (take(end)) break;
      if (any) out_ += ", ";
      if (!value(depth + 1)) return false;
      if (!next(end)) return false;
    }
    out_ += ']';
    return true;
  }

  bool dict(int depth) {
    rest_.remove_prefix(1);
    out_ += '{';
    for (bool any = false;; any = true) {
      skip_blanks();
      if (take('}')) break;
      if (any) out_ += ", ";
      if (rest_.empty() || (rest_.front() != '"' && rest_.front() != '\'') || !string())
        return false;
      skip_blanks();
      if (!take(':')) return false;
      out_ += ": ";
      skip_blanks();
      if (!value(depth + 1) || !next('}')) return false;
    }
    out_ += '}';
    return true;
  }

  // A comma, or the closing bracket, which stays.
  bool next(char end) {
    skip_blanks();
    return take(',') || (!rest_.empty() && rest_.front() == end);
  }

  bool word() {
    const size_t size = std::min(rest_.find_first_of(" \t\r\n,:]})"), rest_.size());
    const std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(size);
    if (text == "True" || text == "true") return add("true");
    if (text == "False" || text == "false") return add("false");
    if (text == "None" || text == "null") return add("null");
    const auto number = parse_json(text);
    return number && number->is_number() && add(text);
  }
  bool add(std::string_view text) {
    out_ += text;
    return true;
  }

  bool string() {
    const char quote = rest_.front();
    rest_.remove_prefix(1);
    std::string text;
    while (!take(quote)) {
      if (rest_.empty()) return false;
      const char c = rest_.front();
      rest_.remove_prefix(1);
      if (c != '\\')
        text += c;
      else if (!escape(text))
        return false;
    }
    append_json_string(out_, text);
    return true;
  }

  // Reads what follows a backslash. One before a letter without a meaning stays, as in Python.
  bool escape(std::string& text) {
    if (rest_.empty()) return false;
    const char c = rest_.front();
    rest_.remove_prefix(1);
    constexpr std::string_view kNames = "abfnrtv\\'\"0", kValues("\a\b\f\n\r\t\v\\'\"\0", 11);
    if (const size_t found = kNames.find(c); found != kNames.npos) {
      text += kValues[found];
      return true;
    }
    if (c == '\n') return true;
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) return code_point(digits, text);
    text += '\\';
    text += c;
    return true;
  }

  bool code_point(size_t digits, std::string& text) {
    if (rest_.size() < digits) return false;
    uint32_t code = 0;
    const char* end = rest_.data() + digits;
    if (std::from_chars(rest_.data(), end, code, 16).ptr != end) return false;
    rest_.remove_prefix(digits);
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    utf8_append(text, static_cast<char32_t>(code));
    return true;
  }

  std::string_view rest_;
  std::string out_;
};

}  // namespace

std::optional<std::string> python_to_json(std::string_view text) {
  return Converter(text).convert();
}

}  // namespace skiff::answer

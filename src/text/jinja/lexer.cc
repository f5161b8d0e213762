#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/utf8.h"
#include "text/jinja/budget.h"
#include "text/jinja/unicode.h"
#include "text/jinja/value.h"

namespace skiff::jinja {
namespace {

using Kind = Token::Kind;

// "\r\n" and "\r" become "\n"; one newline at the very end is dropped.
std::string normalized(const std::string& source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    out += source[i] == '\r' ? '\n' : source[i];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
// Returns the length of the name at the start of the text; 0 if there is none.
size_t name_length(std::string_view text) {
  size_t n = 0;
  for (size_t next = 0; next < text.size(); n = next) {
    const char32_t c = utf8_next(text, &next);
    if (n == 0 ? !starts_identifier(c) : !continues_identifier(c)) break;
  }
  return n;
}

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Unescaper {
 public:
  explicit Unescaper(std::string_view raw) : raw_(raw) {}

  std::string run() {
    while (at_ < raw_.size()) {
      if (raw_[at_] != '\\' || at_ + 1 == raw_.size())
        out_ += raw_[at_++];
      else
        escape(raw_[at_ + 1]);
    }
    return std::move(out_);
  }

 private:
  void escape(char c) {
    static constexpr std::string_view kNames = "\\'\"abfnrtv";
    static constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    at_ += 2;
    if (c == '\n') return;
    if (const size_t i = kNames.find(c); i != kNames.npos) return void(out_ += kMeanings[i]);
    if (c == 'x') return code(2);
    if (c == 'u') return code(4);
    if (c == 'U') return code(8);
    if (c >= '0' && c <= '7') return octal();
    out_ += {'\\', c};
  }

  void code(size_t digits) {
    char32_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const int digit = at_ < raw_.size() ? hex_digit(raw_[at_]) : -1;
      if (digit < 0) fail("a string has an escape with too few digits");
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
      fail("a string has an escape that is not a character");
    utf8_append(out_, value);
  }

  void octal() {
    char32_t value = 0;
    --at_;
    for (int i = 0; i < 3 && at_ < raw_.size() && raw_[at_] >= '0' && raw_[at_] <= '7'; ++i)
      value = value * 8 + static_cast<char32_t>(raw_[at_++] - '0');
    utf8_append(out_, value);
  }

  std::string_view raw_;
  size_t at_ = 0;
  std::string out_;
};

class Lexer {
 public:
  Lexer(std::string_view source, int* line) : source_(source), line_(*line) { line_ = 1; }

  std::vector<Token> run() {
    while (at_ < source_.size()) data();
    add(Kind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return source_.substr(at_); }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  void add(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void advance(size_t n) {
    line_ += static_cast<int>(std::count(source_.begin() + at_, source_.begin() + at_ + n, '\n'));
    at_ += n;
    line_starting_ = n > 0 && source_[at_ - 1] == '\n';
  }
  void skip_space() { advance(rest().size() - strip(rest(), Side::kLeft).size()); }

  // Reads the text up to the next tag, and that tag.
  void data() {
    size_t open = at_;
    for (;; ++open) {
      open = source_.find('{', open);
      if (open == source_.npos || open + 1 == source_.size()) {
        add(Kind::kData, std::string(rest()));
        return advance(source_.size() - at_);
      }
      if (const char c = source_[open + 1]; c == '{' || c == '%' || c == '#') break;
    }
    std::string_view text = source_.substr(at_, open - at_);
    const char type = source_[open + 1];
    char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
    if (sign != '-' && sign != '+') sign = '\0';
    if (sign == '-')
      text = strip(text, Side::kRight);
    else if (sign == '\0' && type != '{')
      text = without_indent(text);
    if (!text.empty()) add(Kind::kData, std::string(text));
    advance(open - at_);
    advance(sign ? 3 : 2);
    if (type == '{')
      tag(Kind::kVariableBegin, Kind::kVariableEnd, "}}");
    else if (type == '#')
      comment();
    else if (!raw())
      tag(Kind::kBlockBegin, Kind::kBlockEnd, "%}");
  }

  // lstrip_blocks: removes blanks between the start of the line and the tag.
  std::string_view without_indent(std::string_view text) const {
    const size_t line = text.rfind('\n') + 1;
    if (line == 0 && !line_starting_) return text;
    return strip(text.substr(line), Side::kLeft).empty() ? text.substr(0, line) : text;
  }

  // Consumes "-%}" and white space, "+%}", or "%}" and one newline (trim_blocks; not after "}}").
  bool end_of_tag(std::string_view end) {
    const char sign = peek();
    if ((sign == '-' || (sign == '+' && end != "}}")) && source_.substr(at_ + 1).starts_with(end)) {
      advance(1 + end.size());
      if (sign == '-') {
        skip_space();
        line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
      }
      return true;
    }
    if (!rest().starts_with(end)) return false;
    advance(end.size());
    if (end != "}}" && peek() == '\n') advance(1);
    return true;
  }

  void comment() {
    const int start = line_;
    while (at_ < source_.size()) {
      if (end_of_tag("#}")) return;
      advance(1);
    }
    line_ = start;
    fail("a comment is not closed with #}}");
  }

  // Reads {% raw %} ... {% endraw %}; returns false and consumes nothing if this is another tag.
  bool raw() {
    const size_t start = at_;
    if (!raw_tag("raw", false)) return false;
    const size_t begin = at_;
    line_starting_ = source_[at_ - 1] == '\n';
    for (size_t open = at_; (open = source_.find("{%", open)) != source_.npos; open += 2) {
      std::string_view text = source_.substr(begin, open - begin);
      at_ = open + 2;
      const char sign = peek();
      if (sign == '-' || sign == '+') ++at_;
      if (!raw_tag("endraw", true)) continue;
      if (sign == '-')
        text = strip(text, Side::kRight);
      else if (sign != '+')
        text = without_indent(text);
      add(Kind::kData, std::string(text));
      line_ += static_cast<int>(std::count(&source_[start], &source_[at_ - 1] + 1, '\n'));
      line_starting_ = source_[at_ - 1] == '\n';
      return true;
    }
    fail("{{% raw %}} is not closed with {{% endraw %}}");
  }

  // Consumes "  NAME  %}" at the cursor, without counting lines, and returns whether it was there.
  bool raw_tag(std::string_view name, bool trim) {
    std::string_view text = strip(rest(), Side::kLeft);
    if (!text.starts_with(name)) return false;
    text = strip(text.substr(name.size()), Side::kLeft);
    const char sign = text.empty() ? '\0' : text[0];
    const bool plus = sign == '+' && trim;
    if (sign == '-' || plus) text.remove_prefix(1);
    if (!text.starts_with("%}")) return false;
    text.remove_prefix(2);
    if (sign == '-')
      text = strip(text, Side::kLeft);
    else if (trim && !plus && text.starts_with('\n'))
      text.remove_prefix(1);
    at_ = source_.size() - text.size();
    return true;
  }

  void tag(Kind begin, Kind end, std::string_view closing) {
    add(begin, {});
    std::vector<char> open;
    const int start = line_;
    for (;;) {
      skip_space();
      if (at_ == source_.size()) break;
      if (open.empty() && end_of_tag(closing)) return add(end, {});
      token(open);
    }
    line_ = start;
    fail("a tag is not closed with {}", closing);
  }

  void token(std::vector<char>& open) {
    const char c = peek();
    if (is_digit(c)) return number();
    if (c == '"' || c == '\'') return string();
    if (const size_t n = name_length(rest()); n > 0) {
      if (n > kMaxName) fail("a name of {} bytes, more than {}", n, kMaxName);
      add(Kind::kName, std::string(rest().substr(0, n)));
      return advance(n);
    }
    operator_token(open);
  }

  // A number that begins with 0 has only zeros, so 012 is two numbers. After a dot, as in x.0.1,
  // there are no fractions.
  void number() {
    size_t n = 1;
    Kind kind = Kind::kInteger;
    const auto digits = [&](auto valid) {
      while (valid(peek(n)) || (peek(n) == '_' && valid(peek(n + 1)))) ++n;
    };
    const char base = peek() == '0' ? static_cast<char>(peek(1) | 0x20) : '\0';
    const int largest = base == 'x' ? 16 : base == 'o' ? 8 : base == 'b' ? 2 : 0;
    const auto in_base = [&](char c) { return hex_digit(c) >= 0 && hex_digit(c) < largest; };
    if (largest && (in_base(peek(2)) || (peek(2) == '_' && in_base(peek(3))))) {
      ++n;
      digits(in_base);
    } else if (at_ > 0 && source_[at_ - 1] == '.') {
      integer_digits(digits);
    } else {
      digits(is_digit);
      if (peek(n) == '.' && is_digit(peek(n + 1))) {
        kind = Kind::kFloat;
        ++n;
        digits(is_digit);
      }
      const size_t sign = peek(n + 1) == '-' || peek(n + 1) == '+' ? 1 : 0;
      if ((peek(n) == 'e' || peek(n) == 'E') && is_digit(peek(n + 1 + sign))) {
        kind = Kind::kFloat;
        n += 1 + sign;
        digits(is_digit);
      }
      if (kind == Kind::kInteger) {
        n = 1;
        integer_digits(digits);
      }
    }
    std::string text(rest().substr(0, n));
    std::erase(text, '_');
    add(kind, std::move(text));
    advance(n);
  }

  template <class Digits>
  void integer_digits(Digits digits) {
    if (peek() == '0')
      digits([](char c) { return c == '0'; });
    else
      digits(is_digit);
  }

  void string() {
    size_t n = 1;
    while (at_ + n < source_.size() && peek(n) != peek()) n += peek(n) == '\\' ? 2 : 1;
    if (at_ + n >= source_.size()) fail("a string is not closed with {}", peek());
    add(Kind::kString, Unescaper(rest().substr(1, n - 1)).run());
    advance(n + 1);
  }

  void operator_token(std::vector<char>& open) {
    static constexpr std::array<std::string_view, 6> kPairs = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kSingles = "+-/*%~[](){}><=.:|,;";
    size_t n = 0;
    for (const auto pair : kPairs)
      if (rest().starts_with(pair)) n = 2;
    if (n == 0 && kSingles.find(peek()) != kSingles.npos && peek() != '\0') n = 1;
    if (n == 0) fail("unexpected character '{}'", rest().substr(0, character_length(rest())));
    if (n == 1) balance(open, peek());
    add(Kind::kOperator, std::string(rest().substr(0, n)));
    advance(n);
  }

  static void balance(std::vector<char>& open, char c) {
    if (c == '(') open.push_back(')');
    if (c == '[') open.push_back(']');
    if (c == '{') open.push_back('}');
    if (c != ')' && c != ']' && c != '}') return;
    if (open.empty()) fail("unexpected '{}'", c);
    if (open.back() != c) fail("unexpected '{}', expected '{}'", c, open.back());
    open.pop_back();
  }

  std::string_view source_;
  size_t at_ = 0;
  int& line_;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(const std::string& source, int* line) {
  const std::string text = normalized(source);
  return Lexer(text, line).run();
}

}  // namespace skiff::jinja

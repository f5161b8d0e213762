// Implements Python's two ways to format values: '%s' % x and '{}'.format(x).
#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "text/jinja/builtins.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

bool is_decimal(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

class Percent {
 public:
  Percent(Budget& budget, std::string_view text, const Value& args)
      : budget_(budget), text_(text), args_(args) {}

  std::string run() {
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c != '%')
        out_ += c;
      else
        one();
    }
    const Seq* tuple = as_tuple();
    if (tuple ? used_ < tuple->items.size() : !is_mapping() && used_ == 0)
      fail("not all arguments converted during string formatting");
    budget_.make(out_.size());
    return std::move(out_);
  }

 private:
  const Seq* as_tuple() const {
    const Seq* seq = args_.as_seq();
    return seq && seq->form == Seq::Form::kTuple ? seq : nullptr;
  }

  // Returns whether the value could be indexed by a key; such an argument may stay unused.
  bool is_mapping() const {
    const Seq* seq = args_.as_seq();
    return args_.as_dict() || args_.is_undefined() ||
           (seq && (seq->form == Seq::Form::kList || seq->form == Seq::Form::kRange));
  }

  const Value& next() {
    if (const Seq* tuple = as_tuple()) {
      if (used_ >= tuple->items.size()) fail("not enough arguments for format string");
      return tuple->items[used_++];
    }
    if (used_++ > 0) fail("not enough arguments for format string");
    return args_;
  }

  const Value& named() {
    const size_t end = text_.find(')', at_);
    const Dict* dict = args_.as_dict();
    if (end == text_.npos) fail("incomplete format key");
    if (!dict) fail("format requires a mapping");
    const Value* value = find(budget_, *dict, text_.substr(at_ + 1, end - at_ - 1));
    if (!value) fail("no value for a key of the format");
    at_ = end + 1;
    return *value;
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void flags(FormatSpec& spec) {
    bool zero = false;
    for (; peek(); ++at_) {
      if (peek() == '-')
        spec.align = '<';
      else if (peek() == '0')
        zero = true;
      else if (peek() == '+')
        spec.sign = '+';
      else if (peek() == ' ' && spec.sign != '+')
        spec.sign = ' ';
      else if (peek() == '#')
        spec.alternate = true;
      else if (peek() != ' ')
        break;
    }
    if (!zero || spec.align) return;
    spec.align = '=';
    spec.fill = "0";
  }

  // Reads a number from the text, or from the next argument for '*'.
  int64_t number() {
    if (peek() != '*') return static_cast<int64_t>(format_number(text_, &at_));
    ++at_;
    int64_t n = 0;
    if (!is_integral(next(), &n)) fail("* wants int");
    constexpr auto kMax = static_cast<int64_t>(kMaxFormatWidth);
    if (n > kMax || n < -kMax) fail("a format with a number above {}", kMax);
    return n;
  }

  void one() {
    budget_.step();
    const Value* value = nullptr;
    if (peek() == '(') value = &named();
    if (peek() == '%') return void(out_ += text_[at_++]);
    FormatSpec spec;
    flags(spec);
    const int64_t width = number();
    if (width < 0) spec.align = '<', spec.fill = " ";
    spec.width = static_cast<size_t>(std::abs(width));
    if (peek() == '.') {
      ++at_;
      spec.precision = static_cast<int>(std::max<int64_t>(number(), 0));
    }
    if (peek() == 'h' || peek() == 'l' || peek() == 'L') ++at_;
    if (at_ == text_.size()) fail("incomplete format");
    spec.type = text_[at_++];
    out_ += converted(value ? *value : next(), spec);
  }

  std::string converted(const Value& value, FormatSpec& spec) {
    switch (spec.type) {
      case 's':
        return cut(to_text(budget_, value), spec);
      case 'r':
        return cut(repr(budget_, value), spec);
      case 'c':
        return cut(character(value), spec);
      case 'd':
      case 'i':
      case 'u':
        return integer(value, 10, spec);
      case 'o':
        return integer(value, 8, spec);
      case 'x':
      case 'X':
        return integer(value, 16, spec);
      default:
        return floating(value, spec);
    }
  }

  std::string cut(std::string text, FormatSpec& spec) {
    if (spec.precision >= 0 && spec.type != 'c')
      text.resize(character_offset(text, static_cast<size_t>(spec.precision)));
    if (spec.align != '<') spec.align = '>';
    spec.fill = " ";
    return padded_text(budget_, std::move(text), spec);
  }

  static std::string character(const Value& value) {
    int64_t code = 0;
    if (const std::string* text = value.as_text(); text && count_characters(*text) == 1)
      return *text;
    if (!is_integral(value, &code) || code < 0 || code > 0x10ffff ||
        (code >= 0xd800 && code < 0xe000))
      fail("%c requires a character");
    std::string out;
    utf8_append(out, static_cast<char32_t>(code));
    return out;
  }

  std::string integer(const Value& value, int base, const FormatSpec& spec) {
    double d = 0;
    int64_t i = 0;
    if (!is_number(value, &d))
      fail("%{} format: a number is required, not {}", spec.type, type_name(value));
    if (!is_integral(value, &i)) {
      if (base != 10) fail("%{} format: an integer is required, not float", spec.type);
      if (!(std::abs(d) < 9e18)) fail("a number too large for %d");
      i = static_cast<int64_t>(d);
    }
    std::string digits = integer_digits(i, base);
    if (spec.precision > 0 && digits.size() < static_cast<size_t>(spec.precision)) {
      budget_.make(static_cast<uint64_t>(spec.precision));
      digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
    }
    if (spec.type == 'X') digits = to_upper(digits);
    const std::string prefix = !spec.alternate || base == 10 ? ""
                               : base == 8                   ? "0o"
                                                             : std::string{'0', spec.type};
    return padded_number(budget_, i < 0, prefix, std::move(digits), spec);
  }

  std::string floating(const Value& value, const FormatSpec& spec) {
    double d = 0;
    if (std::string_view("eEfFgG").find(spec.type) == std::string_view::npos)
      fail("unsupported format character '{}'", spec.type);
    if (!is_number(value, &d)) fail("must be real number, not {}", type_name(value));
    return padded_number(budget_, std::signbit(d), "",
                         float_digits(std::abs(d), spec.type, spec.precision, spec.alternate),
                         spec);
  }

  Budget& budget_;
  std::string_view text_;
  const Value& args_;
  size_t at_ = 0, used_ = 0;
  std::string out_;
};

class Braces {
 public:
  Braces(Interpreter& in, const Args& args, bool markup) : in_(in), args_(args), markup_(markup) {}

  std::string run(std::string_view text, int nesting = 0) {
    if (nesting > 2) fail("max string recursion exceeded");
    std::string out;
    for (size_t at = 0; at < text.size(); ++at) {
      const char c = text[at];
      const bool brace = c == '{' || c == '}';
      if (!brace || (at + 1 < text.size() && text[at + 1] == c)) {
        out += c;
        at += brace;
        continue;
      }
      if (c == '}') fail("single '}}' encountered in format string");
      const size_t end = closing(text, at + 1);
      out += field(text.substr(at + 1, end - at - 1), nesting);
      at = end;
    }
    in_.budget().make(out.size());
    return out;
  }

 private:
  // Returns the position of the '}' that belongs to the '{' before `at`.
  static size_t closing(std::string_view text, size_t at) {
    int open = 1;
    for (; at < text.size(); ++at) {
      open += text[at] == '{';
      open -= text[at] == '}';
      if (open == 0) return at;
    }
    fail("expected '}}' before end of string");
  }

  // A field is name!conversion:spec; the spec may contain fields.
  std::string field(std::string_view field, int nesting) {
    in_.budget().step();
    size_t split = 0;
    for (bool item = false; split < field.size(); ++split) {
      item = field[split] == '[' || (item && field[split] != ']');
      if (!item && (field[split] == ':' || field[split] == '!')) break;
    }
    Value value = lookup(field.substr(0, split));
    std::string_view rest = field.substr(split);
    if (rest.starts_with('!')) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':'))
        fail("expected ':' after conversion specifier");
      if (rest[1] != 's' && rest[1] != 'r') fail("unknown conversion specifier '{}'", rest[1]);
      value = rest[1] == 'r' ? repr(in_.budget(), value) : to_text(in_.budget(), value);
      rest.remove_prefix(2);
    }
    if (rest.starts_with(':')) rest.remove_prefix(1);
    const std::string text = format_value(in_.budget(), value, run(rest, nesting + 1));
    return markup_ && nesting == 0 && !value.is_markup() ? escaped(in_.budget(), text) : text;
  }

  // The name is a keyword, an index, or empty (the next argument), followed by .attributes and
  // [items].
  Value lookup(std::string_view field) {
    const size_t end = std::min(field.find_first_of(".["), field.size());
    Value value = argument(field.substr(0, end));
    for (std::string_view rest = field.substr(end); !rest.empty();) {
      const bool item = rest[0] == '[';
      if (!item && rest[0] != '.') fail("only '.' or '[' may follow ']' in format field specifier");
      const size_t stop =
          item ? rest.find(']') : std::min(rest.find_first_of(".[", 1), rest.size());
      if (stop == rest.npos) fail("format(): a '[' is not closed");
      const std::string key(rest.substr(1, stop - 1));
      if (key.empty()) fail("empty attribute in format string");
      size_t at = 0;
      if (!item)
        value = in_.attribute(value, key);
      else if (is_decimal(key))
        value = in_.index(value, static_cast<int64_t>(format_number(key, &at)));
      else
        value = in_.index(value, key);
      rest.remove_prefix(std::min(stop + (item ? 1 : 0), rest.size()));
    }
    return value;
  }

  Value argument(std::string_view name) {
    if (!name.empty() && !is_decimal(name)) {
      in_.budget().step(args_.named.size() / 16);
      for (const auto& [known, value] : args_.named)
        if (known == name) return value;
      fail("format(): no argument '{}'", excerpt(name));
    }
    enum { kUnknown, kCounted, kGiven };
    const int numbering = name.empty() ? kCounted : kGiven;
    if (numbering_ != kUnknown && numbering_ != numbering)
      fail("cannot mix automatic and manual field numbering");
    numbering_ = numbering;
    size_t at = 0;
    const size_t i = name.empty() ? next_++ : format_number(name, &at);
    if (i >= args_.positional.size()) fail("format(): no argument {}", i);
    return args_.positional[i];
  }

  Interpreter& in_;
  const Args& args_;
  const bool markup_;
  int numbering_ = 0;
  size_t next_ = 0;
};

}  // namespace

std::string percent_format(Budget& budget, const std::string& text, const Value& args) {
  return Percent(budget, text, args).run();
}

std::string brace_format(Interpreter& in, const Value& self, const Args& args) {
  return Braces(in, args, self.is_markup()).run(*self.as_text());
}

}  // namespace skiff::jinja

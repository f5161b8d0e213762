// Python's two ways to put values into a text: '%s' % x and '{}'.format(x).
#include <algorithm>
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

struct Spec {
  bool left = false, zero = false, plus = false, space = false;
  char align = 0;  // of {}: < > ^
  std::string fill = " ";
  size_t width = 0;
  int precision = -1;
  char type = 0;
};

size_t small_number(std::string_view text, size_t* at) {
  size_t n = 0;
  for (; *at < text.size() && text[*at] >= '0' && text[*at] <= '9'; ++*at) {
    n = n * 10 + static_cast<size_t>(text[*at] - '0');
    if (n > 1000) fail("a format with a width or precision above 1000");
  }
  return n;
}

std::string number_text(const Value& value, const Spec& spec) {
  double d = 0;
  int64_t i = 0;
  if (!is_number(value, &d))
    fail("%{} format: a number is required, not {}", spec.type, type_name(value));
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  const bool integral = is_integral(value, &i);
  if (spec.type == 'd' || spec.type == 'i' || spec.type == 'u') {
    if (!integral && !(std::abs(d) < 9e18)) fail("a number too large for %d");
    return std::to_string(integral ? i : static_cast<int64_t>(d));
  }
  if (spec.type == 'x' || spec.type == 'X' || spec.type == 'o') {
    if (!integral) fail("%{} format: an integer is required", spec.type);
    const uint64_t magnitude = i < 0 ? 0 - static_cast<uint64_t>(i) : static_cast<uint64_t>(i);
    const std::string sign(i < 0 ? 1 : 0, '-');
    const std::string digits = spec.type == 'x'   ? fmt::format("{:x}", magnitude)
                               : spec.type == 'X' ? fmt::format("{:X}", magnitude)
                                                  : fmt::format("{:o}", magnitude);
    return sign + digits;
  }
  if (spec.type == '%') return fmt::format("{:.{}f}%", d * 100, precision);
  if (spec.type == 'f' || spec.type == 'F') return fmt::format("{:.{}f}", d, precision);
  if (spec.type == 'e') return fmt::format("{:.{}e}", d, precision);
  if (spec.type == 'g') return fmt::format("{:.{}g}", d, precision);
  fail("unsupported format character '{}'", spec.type);
}

std::string padded(Budget& budget, std::string text, const Spec& spec, bool number) {
  if (number && (spec.plus || spec.space) && !text.starts_with('-'))
    text.insert(text.begin(), spec.plus ? '+' : ' ');
  const size_t n = count_characters(text);
  budget.make(text.size() + spec.width);
  if (n >= spec.width) return text;
  const size_t missing = spec.width - n;
  if (number && spec.zero && !spec.left && !spec.align)
    return text.insert(text[0] == '-' || text[0] == '+' || text[0] == ' ' ? 1 : 0, missing, '0');
  const bool left = spec.left || spec.align == '<';
  const size_t after = left ? missing : spec.align == '^' ? missing - missing / 2 : 0;
  std::string out;
  for (size_t i = after; i < missing; ++i) out += spec.fill;
  out += text;
  for (size_t i = 0; i < after; ++i) out += spec.fill;
  return out;
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
    if (tuple ? used_ < tuple->items.size() : !args_.as_dict() && !args_.as_seq() && used_ == 0)
      fail("not all arguments converted during string formatting");
    budget_.make(out_.size());
    return std::move(out_);
  }

 private:
  const Seq* as_tuple() const {
    const Seq* seq = args_.as_seq();
    return seq && seq->form == Seq::Form::kTuple ? seq : nullptr;
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
    const Value* value = find(budget_, *dict, std::string(text_.substr(at_ + 1, end - at_ - 1)));
    if (!value) fail("no value for a key of the format");
    at_ = end + 1;
    return *value;
  }

  void one() {
    const Value* value = nullptr;
    if (at_ < text_.size() && text_[at_] == '(') value = &named();
    Spec spec;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '-')
        spec.left = true;
      else if (text_[at_] == '0')
        spec.zero = true;
      else if (text_[at_] == '+')
        spec.plus = true;
      else if (text_[at_] == ' ')
        spec.space = true;
      else if (text_[at_] != '#')
        break;
    }
    spec.width = small_number(text_, &at_);
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      spec.precision = static_cast<int>(small_number(text_, &at_));
    }
    if (at_ == text_.size()) fail("incomplete format");
    spec.type = text_[at_++];
    if (spec.type == '%') return void(out_ += '%');
    if (!value) value = &next();
    if (spec.type != 's' && spec.type != 'r')
      return void(out_ += padded(budget_, number_text(*value, spec), spec, true));
    std::string text = spec.type == 's' ? to_text(budget_, *value) : repr(budget_, *value);
    if (spec.precision >= 0)
      text.resize(character_offset(text, static_cast<size_t>(spec.precision)));
    out_ += padded(budget_, std::move(text), spec, false);
  }

  Budget& budget_;
  std::string_view text_;
  const Value& args_;
  size_t at_ = 0, used_ = 0;
  std::string out_;
};

Spec brace_spec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  const size_t first = text.empty() ? 0 : character_length(text);
  if (first < text.size() && std::string_view("<>^").find(text[first]) != std::string_view::npos) {
    spec.fill = text.substr(0, first);
    at = first;
  }
  if (at < text.size() && std::string_view("<>^").find(text[at]) != std::string_view::npos)
    spec.align = text[at++];
  if (at < text.size() && text[at] == '+') spec.plus = true, ++at;
  if (at < text.size() && text[at] == '0') spec.zero = true, ++at;
  spec.width = small_number(text, &at);
  if (at < text.size() && text[at] == '.')
    spec.precision = static_cast<int>(small_number(text, &++at));
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) fail("unsupported format '{}'", text);
  return spec;
}

std::string formatted(Budget& budget, const Value& value, char conversion, std::string_view text) {
  Spec spec = brace_spec(text);
  double unused;
  const bool number = conversion == 0 && is_number(value, &unused) && !value.as_bool();
  if (number && (spec.type || spec.precision >= 0)) {
    if (!spec.type) fail("unsupported format '{}'", text);
    return padded(budget, number_text(value, spec), spec, true);
  }
  if (spec.type && spec.type != 's') fail("unsupported format '{}'", text);
  std::string out = conversion == 'r' ? repr(budget, value) : to_text(budget, value);
  if (spec.precision >= 0) out.resize(character_offset(out, static_cast<size_t>(spec.precision)));
  if (!number && !spec.align) spec.align = '<';
  return padded(budget, std::move(out), spec, number);
}

// name, 0, or empty (the next one), with .attributes and [items].
Value field_value(Interpreter& in, std::string_view field, const Args& args, size_t* next) {
  const size_t end = std::min(field.find_first_of(".["), field.size());
  const std::string name(field.substr(0, end));
  Value value;
  if (name.empty() || is_all(name, Class::kDigit)) {
    size_t at = 0;
    const size_t i = name.empty() ? (*next)++ : small_number(name, &at);
    if (i >= args.positional.size()) fail("format(): no argument {}", i);
    value = args.positional[i];
  } else {
    const auto found = std::find_if(args.named.begin(), args.named.end(),
                                    [&](const auto& arg) { return arg.first == name; });
    if (found == args.named.end()) fail("format(): no argument '{}'", name);
    value = found->second;
  }
  for (std::string_view rest = field.substr(end); !rest.empty();) {
    const bool item = rest[0] == '[';
    const size_t stop = item ? rest.find(']') : std::min(rest.find_first_of(".[", 1), rest.size());
    if (stop == rest.npos) fail("format(): a '[' is not closed");
    const std::string key(rest.substr(1, stop - 1));
    size_t at = 0;
    const bool number = item && is_all(key, Class::kDigit);
    value = number ? in.index(value, static_cast<int64_t>(small_number(key, &at)))
            : item ? in.index(value, key)
                   : in.attribute(value, key);
    rest.remove_prefix(std::min(stop + (item ? 1 : 0), rest.size()));
  }
  return value;
}

}  // namespace

std::string percent_format(Budget& budget, const std::string& text, const Value& args) {
  return Percent(budget, text, args).run();
}

std::string brace_format(Interpreter& in, const std::string& text, const Args& args) {
  std::string out;
  size_t next = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if ((c == '{' || c == '}') && at + 1 < text.size() && text[at + 1] == c) {
      out += c;
      ++at;
      continue;
    }
    if (c == '}') fail("format(): a single '}}'");
    if (c != '{') {
      out += c;
      continue;
    }
    const size_t end = text.find('}', at);
    if (end == text.npos) fail("format(): a '{{' is not closed");
    std::string_view field = std::string_view(text).substr(at + 1, end - at - 1), spec;
    if (const size_t colon = field.find(':'); colon != field.npos) {
      spec = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = 0;
    if (field.size() >= 2 && field[field.size() - 2] == '!') {
      conversion = field.back();
      field.remove_suffix(2);
    }
    out += formatted(in.budget(), field_value(in, field, args, &next), conversion, spec);
    at = end;
  }
  return out;
}

}  // namespace skiff::jinja

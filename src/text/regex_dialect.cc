#include "text/regex_dialect.h"

#include <fmt/format.h>

namespace skiff::text {
namespace {

constexpr std::string_view kSpace =
    R"(\t-\r\x20\x{85}\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kWord = R"(\p{L}\p{M}\p{Nd}\p{Pc})";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (at_ < in_.size() && refused_.empty()) step();
    if (!refused_.empty())
      return Error{Code::kUnsupported,
                   fmt::format("pattern \"{}\": {}", in_.substr(0, 200), refused_)};
    return std::move(out_);
  }

 private:
  void step() {
    const char c = in_[at_];
    if (c == '\\' && at_ + 1 < in_.size()) return escape(in_[at_ + 1]);
    if (in_class_) {
      in_class(c);
    } else if (c == '[') {
      open_class();
    } else {
      if (in_.substr(at_).starts_with("(?")) option();
      take(1);
    }
  }

  void escape(char c) {
    if (c == 'h' || c == 'H') {
      refused_ = "\\h is not supported";
    } else if (c == 's' || c == 'w') {
      shorthand(c == 's' ? kSpace : kWord, "[");
    } else if ((c == 'S' || c == 'W') && !in_class_) {
      shorthand(c == 'S' ? kSpace : kWord, "[^");
    } else if (c == 'W') {
      refused_ = "\\W inside a class is not supported";
    } else {
      take(2);
    }
  }

  void shorthand(std::string_view set, std::string_view open) {
    if (!in_class_) out_ += open;
    out_ += set;
    if (!in_class_) out_ += ']';
    at_ += 2;
  }

  void open_class() {
    in_class_ = true;
    take(1);
    if (at_ < in_.size() && in_[at_] == '^') take(1);
    if (at_ < in_.size() && in_[at_] == ']') refused_ = "an empty class is not supported";
  }

  void in_class(char c) {
    if (in_.substr(at_).starts_with("&&")) refused_ = "class intersection is not supported";
    if (in_.substr(at_).starts_with("[:")) {
      const size_t end = in_.find(":]", at_ + 2);
      if (end != in_.npos) return take(end + 2 - at_);
    }
    if (c == '[') refused_ = "a class inside a class is not supported";
    if (c == ']') in_class_ = false;
    take(1);
  }

  // In Ruby (?m) makes the dot match newlines.
  void option() {
    const size_t end = in_.find_first_not_of("imsx-", at_ + 2);
    if (end == in_.npos || (in_[end] != ')' && in_[end] != ':')) return;
    if (in_.substr(at_ + 2, end - at_ - 2).find('m') != in_.npos)
      refused_ = "option m is not supported";
  }

  void take(size_t count) {
    out_ += in_.substr(at_, count);
    at_ += count;
  }

  std::string_view in_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_, refused_;
};

}  // namespace

Result<std::string> translate_oniguruma(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace skiff::text

// The syntax of regular expressions, by recursive descent.
#include <algorithm>
#include <charconv>

#include "base/utf8.h"
#include "grammar/mended_text.h"
#include "grammar/refusal.h"
#include "grammar/regex_node.h"

namespace skiff::grammar {
namespace {

constexpr int kMaxDepth = 128;                // groups within groups
constexpr uint32_t kMaxCount = 1'000'000;     // the most that one repetition counts to
constexpr uint64_t kMaxProduct = 10'000'000;  // product of the counts of nested repetitions

class Parser {
 public:
  Parser(std::string_view text, Reading reading)
      : text_(text),
        reading_(reading),
        detail_(reading == Reading::kLeast ? Detail::kExact : Detail::kCoarse) {}

  RegexTree parse() {
    RegexTree out = choice();
    if (at_ < text_.size()) fail("unbalanced )");
    return out;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> form, Args&&... args) const {
    refuse("regular expression, byte {}: {}", at_, fmt::format(form, std::forward<Args>(args)...));
  }
  bool more() const { return at_ < text_.size(); }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  static RegexTree node(RegexKind kind) {
    auto out = std::make_unique<RegexNode>();
    out->kind = kind;
    return out;
  }
  // Large sets are kept once for each time that they are written, so these are counted.
  RegexTree characters(Characters set) {
    constexpr size_t kMaxRanges = 1'000'000;
    num_ranges_ += set.ranges().size();
    if (num_ranges_ > kMaxRanges) fail("classes have more than {} ranges together", kMaxRanges);
    RegexTree out = node(RegexKind::kCharacters);
    out->characters = std::move(set);
    return out;
  }

  RegexTree choice() {
    if (++depth_ > kMaxDepth) fail("groups are nested deeper than {}", kMaxDepth);
    RegexTree out = node(RegexKind::kChoice);
    do {
      out->parts.push_back(sequence());
      out->anchors |= out->parts.back()->anchors;
    } while (take("|"));
    --depth_;
    if (out->parts.size() == 1) return std::move(out->parts[0]);
    return out;
  }

  RegexTree sequence() {
    RegexTree out = node(RegexKind::kSequence);
    while (more() && peek() != '|' && peek() != ')') {
      out->parts.push_back(repeated());
      out->anchors |= out->parts.back()->anchors;
    }
    return out;
  }

  RegexTree repeated() {
    const uint64_t outer = product_;
    product_ = 1;
    RegexTree out = atom();
    uint64_t inner = product_;
    if (uint32_t min = 0, max = 0; quantifier(&min, &max)) {
      if (out->kind == RegexKind::kBegin || out->kind == RegexKind::kEnd || out->anchors)
        fail("a repeated anchor is not supported");
      if (max != kEndless) inner *= std::max<uint64_t>(max, 1);
      if (max == kEndless && min > 1) inner *= min;
      if (inner > kMaxProduct) fail("repetitions multiply to more than {}", kMaxProduct);
      RegexTree body = std::move(out);
      out = node(RegexKind::kRepeat);
      out->min = min, out->max = max;
      out->parts.push_back(std::move(body));
      if (more() && std::string_view("*+?{").find(peek()) != std::string_view::npos)
        fail("nothing to repeat");
    }
    product_ = std::max(outer, inner);
    return out;
  }

  bool quantifier(uint32_t* min, uint32_t* max) {
    if (take("*")) {
      *min = 0, *max = kEndless;
    } else if (take("+")) {
      *min = 1, *max = kEndless;
    } else if (take("?")) {
      *min = 0, *max = 1;
    } else if (!counts(min, max)) {
      return false;
    }
    if (!take("?") && peek() == '+') fail("possessive repetition is not supported");
    return true;
  }

  // {m}, {m,} or {m,n}. Any other brace stands for itself.
  bool counts(uint32_t* min, uint32_t* max) {
    const size_t start = at_;
    if (!take("{")) return false;
    if (peek() == ',') fail("{{,n}} means different things to different readers; write {{0,n}}");
    if (!number(min)) return at_ = start, false;
    *max = *min;
    if (take(",") && !number(max)) *max = kEndless;
    if (!take("}")) return at_ = start, false;
    if (*max < *min) fail("the bounds of a repetition are out of order");
    return true;
  }

  bool number(uint32_t* out) {
    size_t end = at_;
    while (end < text_.size() && text_[end] >= '0' && text_[end] <= '9') ++end;
    if (end == at_) return false;
    const auto got = std::from_chars(text_.data() + at_, text_.data() + end, *out);
    if (got.ec != std::errc() || *out > kMaxCount) fail("a repetition of more than {}", kMaxCount);
    at_ = end;
    return true;
  }

  RegexTree atom() {
    if (take("(")) return group();
    if (take("[")) return characters(bracket());
    if (take(".")) return characters(any_but_line_ends(reading_));
    if (peek() == '^' || peek() == '$') {
      RegexTree out = node(take("^") ? RegexKind::kBegin : (take("$"), RegexKind::kEnd));
      out->anchors = true;
      return out;
    }
    if (peek() == '*' || peek() == '+' || peek() == '?') fail("nothing to repeat");
    if (take("\\")) return characters(escape(false));
    const char32_t c = character();
    return characters({{c, c}});
  }

  char32_t character() {
    if (utf8_length(text_.substr(at_)) <= 0) fail("not UTF-8");
    const char32_t c = utf8_next(text_, &at_);
    if (c == 0xFFFD) fail("this {}; write it as \\uFFFD if it is meant", kMended);
    return c;
  }

  RegexTree group() {
    if (take("?")) {
      if (take("P<") || (peek() == '<' && peek(1) != '=' && peek(1) != '!' && take("<"))) {
        const size_t end = text_.find('>', at_);
        if (end == text_.npos) fail("a group's name without >");
        at_ = end + 1;
      } else if (!take(":")) {
        const char c = peek();
        fail("{} is not supported", c == '=' || c == '!' || c == '<' ? "look-around"
                                    : c == '>'                       ? "an atomic group"
                                    : c == 'P'                       ? "a back-reference"
                                                                     : "a group with flags");
      }
    }
    RegexTree out = choice();
    if (!take(")")) fail("a group without )");
    return out;
  }

  Characters bracket() {
    const bool inverse = take("^");
    if (peek() == ']') fail("an empty class [] or [^] is not supported");
    // What is left out of the smaller set is the larger one.
    if (inverse) reading_ = opposite(reading_);
    Characters out;
    while (!take("]")) {
      if (!more()) fail("a class without ]");
      const Characters low = member();
      const bool range = peek() == '-' && peek(1) != ']' && at_ + 1 < text_.size();
      if (!range) {
        out.add(low);
        continue;
      }
      take("-");
      const Characters high = member();
      const char32_t from = single(low), to = single(high);
      if (from > to) fail("a class's range is out of order");
      out.add(from, to);
    }
    out.settle();
    if (!inverse) return out;
    reading_ = opposite(reading_);
    return out.inverse();
  }
  char32_t single(const Characters& set) const {
    if (set.ranges().size() != 1 || set.ranges()[0].first != set.ranges()[0].second)
      fail("a range from or to a class");
    return set.ranges()[0].first;
  }
  Characters member() {
    if (take("\\")) return escape(true);
    const char32_t c = character();
    return {{c, c}};
  }

  // After the backslash.
  Characters escape(bool in_class) {
    if (!more()) fail("a pattern that ends in a backslash");
    const char c = peek();
    const auto code = [&](char32_t value) { return ++at_, Characters{{value, value}}; };
    switch (c) {
      case 'd':
      case 'D':
      case 'w':
      case 'W':
      case 's':
      case 'S':
        ++at_;
        return class_escape(c, reading_, detail_);
      case 'n':
        return code('\n');
      case 'r':
        return code('\r');
      case 't':
        return code('\t');
      case 'f':
        return code('\f');
      case 'v':
        return code('\v');
      case '0':
        if (peek(1) >= '0' && peek(1) <= '9') fail("an octal escape is not supported");
        return code(0);
      case 'b':
        if (in_class) return code('\b');
        fail("\\b is not supported");
      case 'x':
        return ++at_, hex(2);
      case 'u':
        return ++at_, unicode();
      case 'p':
      case 'P':
        return property();
      default:
        break;
    }
    if (c >= '1' && c <= '9') fail("a back-reference is not supported");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) fail("\\{} is not supported", c);
    const char32_t literal = character();
    return {{literal, literal}};
  }

  char32_t digits(size_t count) {
    uint32_t value = 0;
    const auto part = text_.substr(at_, count);
    const auto got = std::from_chars(part.data(), part.data() + part.size(), value, 16);
    if (part.size() != count || got.ptr != part.data() + count)
      fail("an escape without its digits");
    at_ += count;
    return value;
  }
  Characters checked(char32_t c) const {
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) fail("an escape of no character");
    return {{c, c}};
  }
  Characters hex(size_t count) { return checked(digits(count)); }
  Characters unicode() {
    if (take("{")) {
      const size_t end = text_.find('}', at_);
      if (end == text_.npos || end == at_ || end - at_ > 6) fail("\\u{{}} without its digits");
      const char32_t value = digits(end - at_);
      ++at_;
      return checked(value);
    }
    const char32_t high = digits(4);
    if (high < 0xD800 || high >= 0xDC00 || !take("\\u")) return checked(high);
    const char32_t low = digits(4);
    if (low < 0xDC00 || low >= 0xE000) fail("an escape of no character");
    return checked(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00));
  }

  Characters property() {
    const bool inverse = peek() == 'P';
    ++at_;
    const size_t end = text_.find('}', at_);
    if (!take("{") || end == text_.npos) fail("\\p without a property in braces");
    const auto name = text_.substr(at_, end - at_);
    at_ = end + 1;
    if (const auto set = category(name)) return inverse ? set->inverse() : *set;
    fail("\\p{{{}}} is not supported", name);
  }

  std::string_view text_;
  Reading reading_;  // how the class at hand is read, which is the opposite within [^...]
  // What is left out of the least reading must be exact to leave anything; what the greatest
  // reading holds too much is only forbidden as a name.
  Detail detail_;
  size_t at_ = 0;
  int depth_ = 0;
  size_t num_ranges_ = 0;
  // The product of the counts around the deepest repetition in the current atom.
  uint64_t product_ = 1;
};

}  // namespace

RegexTree parse_regex(std::string_view pattern, Reading reading) {
  return Parser(pattern, reading).parse();
}

}  // namespace skiff::grammar

#include "grammar/grammar_reader.h"

#include <algorithm>
#include <charconv>

#include "base/utf8.h"

namespace skiff::grammar {

NamedRules::Rule& NamedRules::rule(const std::string& name) {
  const auto known = known_.find(name);
  if (known != known_.end()) return known->second;
  const RuleId id = rules_.reserve();
  rules_.names[id] = name;
  return known_[name] = {id};
}

ExprId NamedRules::use(const std::string& name) { return rules_.exprs.call(rule(name).id); }

void NamedRules::define(const std::string& name, ExprId expr) {
  Rule& mine = rule(name);
  if (mine.defined) refuse("grammar: rule \"{}\" is defined twice", name);
  mine.defined = true;
  rules_.define(mine.id, expr);
}

bool NamedRules::defined(const std::string& name) const {
  const auto known = known_.find(name);
  return known != known_.end() && known->second.defined;
}

void NamedRules::check() const {
  for (const auto& [name, rule] : known_)
    if (!rule.defined) refuse("grammar: rule \"{}\" is used but not defined", name);
}

size_t GrammarCursor::line() const {
  const auto before = text_.substr(0, at_);
  return 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
}

bool GrammarCursor::take(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) return false;
  at_ += word.size();
  return true;
}

std::string GrammarCursor::name() {
  const size_t start = at_;
  const auto is_part = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  while (more() && is_part(peek())) ++at_;
  return std::string(text_.substr(start, at_ - start));
}

char32_t GrammarCursor::character() {
  if (!more()) fail("the grammar ends too early");
  return utf8_next(text_, &at_);
}

char32_t GrammarCursor::escape() {
  const char c = peek();
  const auto hex = [&](size_t digits) {
    ++at_;
    uint32_t value = 0;
    const auto part = text_.substr(at_, digits);
    const auto got = std::from_chars(part.data(), part.data() + part.size(), value, 16);
    if (part.size() != digits || got.ptr != part.data() + digits || value > 0x10FFFF ||
        (value >= 0xD800 && value < 0xE000))
      fail("an escape of no character");
    at_ += digits;
    return char32_t{value};
  };
  switch (c) {
    case 'x':
      return hex(2);
    case 'u':
      return hex(4);
    case 'U':
      return hex(8);
    case 'n':
      return ++at_, U'\n';
    case 'r':
      return ++at_, U'\r';
    case 't':
      return ++at_, U'\t';
    case 'f':
      return ++at_, U'\f';
    case '0':
      return ++at_, U'\0';
    default:
      break;
  }
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9'))
    fail("the escape \\{} is not supported", c);
  return character();
}

std::string GrammarCursor::quoted(char quote) {
  std::string out;
  while (!take(std::string_view(&quote, 1))) {
    if (!more() || peek() == '\n') fail("a string without its closing quote");
    utf8_append(out, take("\\") ? escape() : character());
  }
  return out;
}

uint32_t GrammarCursor::number() {
  constexpr uint32_t kMax = 1'000'000;
  uint32_t value = 0;
  const char* begin = text_.data() + at_;
  const auto got = std::from_chars(begin, text_.data() + text_.size(), value);
  if (got.ec != std::errc() || value > kMax) fail("expected a number up to {}", kMax);
  at_ += static_cast<size_t>(got.ptr - begin);
  return value;
}

ExprId GrammarReader::choice(int depth) {
  constexpr int kMaxDepth = 128;
  if (depth > kMaxDepth) in_.fail("groups are nested deeper than {}", kMaxDepth);
  std::vector<ExprId> choices = {sequence(depth)};
  while (take_bar(depth)) choices.push_back(sequence(depth));
  return exprs().alt(std::move(choices));
}

ExprId GrammarReader::sequence(int depth) {
  std::vector<ExprId> parts;
  for (skip(depth); !at_end(depth); skip(depth)) parts.push_back(repeated(depth));
  if (exprs().fuel().empty()) in_.fail("the grammar is too complex (its fuel is spent)");
  return exprs().joined(parts, kEmpty);
}

ExprId GrammarReader::repeated(int depth) {
  constexpr int kMaxRepeated = 16;  // derivatives recurse into repetitions of repetitions
  ExprId out = item(depth);
  for (int count = 0;; ++count) {
    if (count > kMaxRepeated) in_.fail("more than {} repetitions of one item", kMaxRepeated);
    if (in_.take("*")) {
      out = exprs().repeat(out, 0, kEndless);
    } else if (in_.take("+")) {
      out = exprs().repeat(out, 1, kEndless);
    } else if (in_.take("?")) {
      out = exprs().optional(out);
    } else if (const auto times = bounds()) {
      if (times->max < times->min) in_.fail("the bounds of a repetition are out of order");
      out = exprs().repeat(out, times->min, times->max);
    } else {
      return out;
    }
  }
}

ExprId GrammarReader::group(std::string_view close, int depth) {
  const ExprId out = choice(depth + 1);
  skip(depth + 1);
  if (!in_.take(close)) in_.fail("a group without {}", close);
  return out;
}

ExprId GrammarReader::use(const std::string& name) {
  if (name.empty()) in_.fail("unexpected {}", std::string(1, in_.peek()));
  return names_.use(name);
}

ExprId GrammarReader::whole(const std::string& start) {
  if (!names_.defined(start)) refuse("grammar: there is no rule \"{}\"", start);
  names_.check();
  return names_.use(start);
}

}  // namespace skiff::grammar

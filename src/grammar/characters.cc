#include "grammar/characters.h"

#include <algorithm>
#include <string>

#include "base/utf8.h"
#include "grammar/digit_span.h"

namespace skiff::grammar {
namespace {

constexpr char32_t kSurrogates = 0xD800, kAfterSurrogates = 0xE000, kLast = 0x10FFFF;

std::vector<int> bytes_of(char32_t c) {
  std::string text;
  utf8_append(text, c);
  std::vector<int> out;
  for (const char byte : text) out.push_back(static_cast<uint8_t>(byte));
  return out;
}

std::vector<int> digits_of(char32_t value, int count) {
  std::vector<int> out(static_cast<size_t>(count));
  for (auto it = out.rbegin(); it != out.rend(); ++it, value >>= 4)
    *it = static_cast<int>(value & 15);
  return out;
}

ExprId hex_digit(ExprSet& exprs, int low, int high) {
  ByteSet set;
  for (int digit = low; digit <= high; ++digit) {
    set.add(static_cast<uint8_t>("0123456789abcdef"[digit]));
    set.add(static_cast<uint8_t>("0123456789ABCDEF"[digit]));
  }
  return exprs.bytes(set);
}

// \u and four digits in [low, high].
ExprId escape_span(ExprSet& exprs, char32_t low, char32_t high) {
  const auto leaf = [&](int from, int to) { return hex_digit(exprs, from, to); };
  return exprs.concat(exprs.literal("\\u"),
                      digit_span(exprs, digits_of(low, 4), digits_of(high, 4), 0, 15, leaf));
}

// The pair of escapes of a character beyond 0xFFFF, by its high surrogate.
ExprId pair_span(ExprSet& exprs, char32_t low, char32_t high) {
  const char32_t from = low - 0x10000, to = high - 0x10000;
  const char32_t first = from >> 10, last = to >> 10;
  const auto pairs = [&](char32_t h1, char32_t h2, char32_t l1, char32_t l2) {
    return exprs.concat(escape_span(exprs, 0xD800 + h1, 0xD800 + h2),
                        escape_span(exprs, 0xDC00 + l1, 0xDC00 + l2));
  };
  if (first == last) return pairs(first, first, from & 1023, to & 1023);
  std::vector<ExprId> parts = {pairs(first, first, from & 1023, 1023),
                               pairs(last, last, 0, to & 1023)};
  if (first + 1 < last) parts.push_back(pairs(first + 1, last - 1, 0, 1023));
  return exprs.alt(std::move(parts));
}

}  // namespace

void Characters::settle() {
  std::sort(ranges_.begin(), ranges_.end());
  std::vector<Range> merged;
  const auto put = [&](char32_t low, char32_t high) {
    if (low > high) return;
    if (!merged.empty() && low <= merged.back().second + 1)
      merged.back().second = std::max(merged.back().second, high);
    else
      merged.emplace_back(low, high);
  };
  for (const auto& [low, high] : ranges_) {
    put(low, std::min<char32_t>(high, kSurrogates - 1));
    put(std::max(low, kAfterSurrogates), std::min(high, kLast));
  }
  ranges_ = std::move(merged);
}

Characters Characters::inverse() const {
  Characters out;
  char32_t next = 0;
  for (const auto& [low, high] : ranges_) {
    if (low > next) out.add(next, low - 1);
    next = high + 1;
  }
  if (next <= kLast) out.add(next, kLast);
  out.settle();
  return out;
}

Characters Characters::both(const Characters& other) const {
  Characters out = inverse();
  out.add(other.inverse());
  out.settle();
  return out.inverse();
}

ExprId utf8_of(ExprSet& exprs, const Characters& set) {
  constexpr Characters::Range kLengths[] = {
      {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, kLast}};
  const auto leaf = [&](int from, int to) { return exprs.byte_range(from, to); };
  std::vector<ExprId> parts;
  for (const auto& [low, high] : set.ranges())
    for (const auto& [from, to] : kLengths)
      if (low <= to && high >= from)
        parts.push_back(digit_span(exprs, bytes_of(std::max(low, from)),
                                   bytes_of(std::min(high, to)), 0x80, 0xBF, leaf));
  return exprs.alt(std::move(parts));
}

ExprId unicode_escape_of(ExprSet& exprs, const Characters& set) {
  std::vector<ExprId> parts;
  for (const auto& [low, high] : set.ranges()) {
    if (low <= 0xFFFF) parts.push_back(escape_span(exprs, low, std::min<char32_t>(high, 0xFFFF)));
    if (high > 0xFFFF) parts.push_back(pair_span(exprs, std::max<char32_t>(low, 0x10000), high));
  }
  return exprs.alt(std::move(parts));
}

ExprId Speller::json(const Characters& set) {
  Characters escaped = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  if (spelling_ == Spelling::kTaggedJson) escaped.add('<', '<');
  escaped.settle();
  std::vector<ExprId> parts = {utf8_of(exprs_, set.both(escaped.inverse()))};
  Characters by_number;
  const Characters needs_escape = set.both(escaped);
  for (const auto& [low, high] : needs_escape.ranges())
    for (char32_t c = low; c <= high; ++c) {
      constexpr std::string_view kNamed = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
      const size_t at = kNamed.find(static_cast<char>(c));
      if (at == kNamed.npos)
        by_number.add(c, c);
      else
        parts.push_back(exprs_.literal(std::string{'\\', kNames[at]}));
    }
  if (spelling_ != Spelling::kPython) by_number.add(set.both({{0x80, kLast}}));
  by_number.settle();
  parts.push_back(unicode_escape_of(exprs_, by_number));
  return exprs_.alt(std::move(parts));
}

ExprId Speller::one(const Characters& set) {
  if (const auto known = known_.find(set); known != known_.end()) return known->second;
  const ExprId out = spelling_ == Spelling::kUtf8 ? utf8_of(exprs_, set) : json(set);
  return known_[set] = out;
}

ExprId Speller::text(std::string_view text) {
  if (spelling_ == Spelling::kUtf8) return exprs_.literal(text);
  std::vector<ExprId> parts;
  std::string run;  // characters that are written as they are
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<uint8_t>(text[at]);
    if (byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\' &&
        !(byte == '<' && spelling_ == Spelling::kTaggedJson)) {
      run += text[at++];
      continue;
    }
    if (!run.empty()) parts.push_back(exprs_.literal(run));
    run.clear();
    const char32_t c = utf8_next(text, &at);
    parts.push_back(one({{c, c}}));
  }
  ExprId out = exprs_.literal(run);
  for (auto it = parts.rbegin(); it != parts.rend(); ++it) out = exprs_.concat(*it, out);
  return out;
}

}  // namespace skiff::grammar

#include "text/word_pattern.h"

#include <cstdint>

#include "text/char_classes.h"
#include "text/utf8_fast.h"

namespace skiff::text {
namespace {

// A text and the classes of its characters. Positions are starts of characters, or the end.
class Scanner {
 public:
  Scanner(const CharClasses& classes, std::string_view text) : classes_(classes), text_(text) {}

  struct Character {
    char32_t code;
    size_t next;  // where the following character starts
  };

  size_t size() const { return text_.size(); }
  bool is(size_t at, char c) const { return at < text_.size() && text_[at] == c; }

  Character at(size_t at) const {
    const char32_t code = utf8_take(text_, &at);
    return {code, at};
  }
  uint8_t class_of(char32_t c) const { return classes_.of(c); }

  // Returns whether the character at `where` has one of the classes.
  bool any(size_t where, uint8_t mask) const {
    return where < text_.size() && (class_of(at(where).code) & mask) != 0;
  }
  // Returns whether there is a character at `where` and it has none of the classes.
  bool none(size_t where, uint8_t mask) const {
    return where < text_.size() && (class_of(at(where).code) & mask) == 0;
  }
  // Returns the end of the run of characters for which `wanted` is true, at most `most` of them.
  template <class Wanted>
  size_t run_if(size_t where, Wanted wanted, size_t most = SIZE_MAX) const {
    for (; where < text_.size() && most > 0; --most) {
      const Character c = at(where);
      if (!wanted(c.code)) break;
      where = c.next;
    }
    return where;
  }
  size_t run(size_t where, uint8_t mask, size_t most = SIZE_MAX) const {
    return run_if(
        where, [&](char32_t c) { return (class_of(c) & mask) != 0; }, most);
  }
  size_t run_without(size_t where, uint8_t mask) const {
    return run_if(where, [&](char32_t c) { return (class_of(c) & mask) == 0; });
  }

 private:
  const CharClasses& classes_;
  std::string_view text_;
};

// \s+(?!\S)|\s+ : the last of several spaces belongs to the word after them.
size_t spaces(const Scanner& s, size_t at) {
  size_t end = at, last = at;
  while (s.any(end, kSpace)) {
    last = end;
    end = s.at(end).next;
  }
  return end == s.size() || last == at ? end : last;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ : white space up to its last line break is matched first.
size_t spaces_by_line(const Scanner& s, size_t at) {
  size_t end = at, last = at, line = at;
  while (s.any(end, kSpace)) {
    last = end;
    const auto c = s.at(end);
    end = c.next;
    if (s.class_of(c.code) & kBreak) line = end;
  }
  if (line > at) return line;
  return end == s.size() || last == at ? end : last;
}

// 's|'t|'re|'ve|'m|'ll|'d ; `at` if there is none.
template <bool kAnyCase>
size_t contraction(const Scanner& s, size_t at) {
  constexpr char32_t kLongS = 0x17F;  // the only other character that folds to one of these
  if (!s.is(at, '\'') || at + 1 >= s.size()) return at;
  const auto folded = [](char32_t c) {
    return kAnyCase && (c == kLongS || (c >= 'A' && c <= 'Z')) ? (c == kLongS ? 's' : c + 32) : c;
  };
  const auto first = s.at(at + 1);
  const char32_t a = folded(first.code);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return first.next;
  if (first.next >= s.size()) return at;
  const auto second = s.at(first.next);
  const char32_t b = folded(second.code);
  const bool both = (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l');
  return both ? second.next : at;
}

// Each pattern returns the end of the match that begins at a position, or the position if none
// does.

struct Gpt2 {
  static size_t match(const Scanner& s, size_t at) {
    if (const size_t end = contraction<false>(s, at); end > at) return end;
    const size_t word = s.is(at, ' ') ? at + 1 : at;
    if (s.any(word, kLetter)) return s.run(word, kLetter);
    if (s.any(word, kNumber)) return s.run(word, kNumber);
    if (s.none(word, kSpace)) return s.run_without(word, kSpace | kLetter | kNumber);
    return spaces(s, at);
  }
};

// cl100k of GPT-4 and the patterns derived from it: Llama 3 and GLM-4 (3 digits), Qwen 2 (1 digit).
template <size_t kDigits>
struct Cl100k {
  static size_t match(const Scanner& s, size_t at) {
    if (const size_t end = contraction<true>(s, at); end > at) return end;
    const auto first = s.at(at);
    const uint8_t kind = s.class_of(first.code);
    if (kind & kLetter) return s.run(first.next, kLetter);
    if (kind & kNumber) return s.run(first.next, kNumber, kDigits - 1);
    if (!(kind & kBreak) && s.any(first.next, kLetter)) return s.run(first.next, kLetter);
    const size_t sign = first.code == ' ' ? first.next : at;
    if (s.none(sign, kSpace | kLetter | kNumber))
      return s.run(s.run_without(sign, kSpace | kLetter | kNumber), kBreak);
    return spaces_by_line(s, at);
  }
};

// o200k of GPT-4o: words begin with capitals and continue in lower case.
struct O200k {
  static constexpr uint8_t kHead = kUpper | kCaseless | kMark, kTail = kLower | kCaseless | kMark;

  // HEAD*TAIL+ ; `at` if there is none.
  static size_t small(const Scanner& s, size_t at) {
    size_t head = at, tail = at;  // tail: end of the last character of HEAD* that is also in TAIL
    while (s.any(head, kHead)) {
      const auto c = s.at(head);
      head = c.next;
      if (s.class_of(c.code) & kTail) tail = head;
    }
    return s.any(head, kTail) ? s.run(head, kTail) : tail;
  }
  // HEAD+TAIL*
  static size_t capital(const Scanner& s, size_t at) {
    const size_t head = s.run(at, kHead);
    return head > at ? s.run(head, kTail) : at;
  }
  template <class Word>
  static size_t with_prefix(const Scanner& s, size_t at, Word word) {
    if (s.none(at, kBreak | kLetter | kNumber)) {
      const size_t begin = s.at(at).next;
      if (const size_t end = word(s, begin); end > begin) return end;
    }
    return word(s, at);
  }
  static size_t match(const Scanner& s, size_t at) {
    size_t end = with_prefix(s, at, small);
    if (end == at) end = with_prefix(s, at, capital);
    if (end > at) return contraction<true>(s, end);
    const auto first = s.at(at);
    if (s.class_of(first.code) & kNumber) return s.run(at, kNumber, 3);
    const size_t sign = first.code == ' ' ? first.next : at;
    if (s.none(sign, kSpace | kLetter | kNumber))
      return s.run_if(s.run_without(sign, kSpace | kLetter | kNumber),
                      [](char32_t c) { return c == '\r' || c == '\n' || c == '/'; });
    return spaces_by_line(s, at);
  }
};

// The three patterns of DeepSeek V3 and R1, with the words of the last one.
struct DeepSeek {
  static bool is_ascii_letter(char32_t c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; }

  static size_t match(const Scanner& s, size_t at) {
    constexpr uint8_t kWord = kLetter | kMark;
    const auto first = s.at(at);
    const uint8_t kind = s.class_of(first.code);
    if (kind & kWord) return s.run(first.next, kWord);
    if (first.code < 0x80 && (kind & kSign)) {
      const size_t end = s.run_if(first.next, is_ascii_letter);
      if (end > first.next) return end;
    }
    if (!(kind & (kBreak | kSign)) && s.any(first.next, kWord)) return s.run(first.next, kWord);
    const size_t sign = first.code == ' ' ? first.next : at;
    if (s.any(sign, kSign)) return s.run(s.run(sign, kSign), kBreak);
    return kind & kSpace ? spaces_by_line(s, at) : at;
  }
};

struct ChineseAndKana {
  static size_t match(const Scanner& s, size_t at) {
    return s.run_if(at, [](char32_t c) {
      return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
    });
  }
};

template <size_t kMaxCount>
struct Numbers {
  static size_t match(const Scanner& s, size_t at) { return s.run(at, kNumber, kMaxCount); }
};

template <class Pattern>
WordPattern::Piece next_piece(const CharClasses& classes, std::string_view text, size_t at) {
  const Scanner s(classes, text);
  const size_t end = Pattern::match(s, at);
  if (end > at) return {end, true};
  size_t gap = s.at(at).next;
  while (gap < s.size() && Pattern::match(s, gap) == gap) gap = s.at(gap).next;
  return {gap, false};
}

struct Known {
  std::string_view regex;
  WordPattern::Piece (*next)(const CharClasses&, std::string_view, size_t);
};

constexpr Known kKnown[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     next_piece<Gpt2>},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     next_piece<Cl100k<1>>},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     next_piece<Cl100k<3>>},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     next_piece<O200k>},
    {"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}"
     "\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
     next_piece<DeepSeek>},
    {"[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+", next_piece<ChineseAndKana>},
    {R"(\p{N})", next_piece<Numbers<1>>},
    {R"(\p{N}{1,3})", next_piece<Numbers<3>>},
};

}  // namespace

std::optional<WordPattern> WordPattern::find(std::string_view regex) {
  for (const Known& known : kKnown)
    if (known.regex == regex) return WordPattern(CharClasses::get(), known.next);
  return std::nullopt;
}

}  // namespace skiff::text

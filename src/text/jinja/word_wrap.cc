#include "text/jinja/word_wrap.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

bool is_blank(char32_t c) { return (c >= 9 && c <= 13) || c == ' '; }

// The characters of a line, their byte offsets, and the rules for breaking at hyphens.
class Line {
 public:
  explicit Line(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      offsets.push_back(at);
      characters.push_back(utf8_next(text, &at));
    }
    offsets.push_back(text.size());
  }

  size_t size() const { return characters.size(); }
  bool is(size_t i, char32_t c) const { return i < size() && characters[i] == c; }
  bool word(size_t i) const { return i < size() && is_word(characters[i]); }
  bool blank(size_t i) const { return i < size() && is_blank(characters[i]); }
  bool letter(size_t i) const { return word(i) && !decimal(i); }
  bool word_or_mark(size_t i) const {
    return word(i) || (i < size() && characters[i] < 0x80 &&
                       std::string_view("!\"'&.,?").find(static_cast<char>(characters[i])) !=
                           std::string_view::npos);
  }
  // Returns the length of the dash at `i` (two or more hyphens with a word behind them), or 0.
  size_t dash(size_t i) const {
    size_t n = 0;
    while (is(i + n, '-')) ++n;
    return n >= 2 && word(i + n) ? n : 0;
  }

  std::vector<size_t> offsets;
  std::vector<char32_t> characters;

 private:
  bool decimal(size_t i) const {
    std::string one;
    utf8_append(one, characters[i]);
    return is_all(one, Class::kDecimal);
  }
};

// Returns whether a word may be cut behind the hyphen at `i`.
bool may_cut_behind(const Line& line, size_t start, size_t i) {
  if (!line.is(i, '-') || i <= start || i < 2) return false;
  const bool behind_letters = line.letter(i - 1) && line.letter(i - 2);
  const bool behind_mark =
      i >= 3 && line.letter(i - 3) && line.is(i - 2, '-') && line.word_or_mark(i - 1);
  if (!behind_letters && !behind_mark) return false;
  const size_t next = i + 2;
  return line.letter(i + 1) && (line.letter(next) || (line.is(next, '-') && line.letter(next + 1)));
}

size_t end_of_chunk(const Line& line, size_t start, bool hyphens) {
  size_t end = start;
  if (line.blank(start)) {
    while (line.blank(end)) ++end;
    return end;
  }
  if (hyphens && start > 0 && line.word_or_mark(start - 1))
    if (const size_t n = line.dash(start)) return start + n;
  for (++end; end < line.size() && !line.blank(end); ++end) {
    if (!hyphens) continue;
    if (may_cut_behind(line, start, end - 1)) break;
    if (line.word_or_mark(end - 1) && line.dash(end)) break;
  }
  return end;
}

struct Chunk {
  size_t begin, end;
  size_t size() const { return end - begin; }
};

// Returns how much of a word that is longer than a line still fits on this one.
size_t cut_of_long_word(const Line& line, Chunk word, size_t room, const WrapStyle& style) {
  if (!style.break_on_hyphens || word.size() <= room) return room;
  for (size_t i = word.begin + room; i-- > word.begin;) {
    if (!line.is(i, '-')) continue;
    const bool only_hyphens = std::all_of(
        line.characters.begin() + static_cast<ptrdiff_t>(word.begin),
        line.characters.begin() + static_cast<ptrdiff_t>(i), [](char32_t c) { return c == '-'; });
    return i > word.begin && !only_hyphens ? i + 1 - word.begin : room;
  }
  return room;
}

}  // namespace

std::vector<std::string_view> wrapped(Budget& budget, std::string_view text,
                                      const WrapStyle& style) {
  budget.make(text.size() * (sizeof(size_t) + sizeof(char32_t) + sizeof(Chunk)));
  const Line line(text);
  std::vector<Chunk> chunks;
  for (size_t at = 0; at < line.size(); at = chunks.back().end)
    chunks.push_back({at, end_of_chunk(line, at, style.break_on_hyphens)});
  std::reverse(chunks.begin(), chunks.end());

  std::vector<std::string_view> lines;
  while (!chunks.empty()) {
    if (!lines.empty() && line.blank(chunks.back().begin)) chunks.pop_back();
    if (chunks.empty()) break;
    const size_t begin = chunks.back().begin;
    size_t end = begin, last = begin;  // end of the line, and of the chunk that ends it
    const auto take = [&](size_t to) { last = end, end = to; };
    while (!chunks.empty() && end - begin + chunks.back().size() <= style.width) {
      take(chunks.back().end);
      chunks.pop_back();
    }
    if (!chunks.empty() && chunks.back().size() > style.width) {
      const size_t room = style.width - (end - begin);
      if (style.break_long_words) {
        const size_t n = cut_of_long_word(line, chunks.back(), room, style);
        take(end + n);
        chunks.back().begin += n;
      } else if (end == begin) {
        take(chunks.back().end);
        chunks.pop_back();
      }
    }
    if (end > last && line.blank(last)) end = last;
    budget.make(sizeof(std::string_view));
    if (end > begin)
      lines.push_back(text.substr(line.offsets[begin], line.offsets[end] - line.offsets[begin]));
  }
  return lines;
}

}  // namespace skiff::jinja

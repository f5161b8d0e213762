#include "text/jinja/search.h"

#include <cstdint>
#include <vector>

namespace skiff::jinja {
namespace {

// Up to this product of lengths, the standard library's quadratic search is fast enough.
constexpr size_t kSmall = 1 << 20;

bool is_small(std::string_view text, std::string_view part) {
  return part.size() < 2 || text.size() <= kSmall / part.size();
}

// borders[i] is the length of the longest proper prefix of the first i characters that is also
// their suffix.
template <class Iterator>
std::vector<uint32_t> borders_of(Iterator part, size_t n) {
  std::vector<uint32_t> borders(n + 1, 0);
  uint32_t length = 0;
  for (size_t i = 1; i < n; ++i) {
    while (length > 0 && part[i] != part[length]) length = borders[length];
    if (part[i] == part[length]) ++length;
    borders[i + 1] = length;
  }
  return borders;
}

// Returns the end of the first occurrence, counted from `text`; 0 if there is none.
template <class Iterator>
size_t end_of_first(Iterator text, size_t size, Iterator part, size_t n) {
  const auto borders = borders_of(part, n);
  size_t matched = 0;
  for (size_t i = 0; i < size; ++i) {
    while (matched > 0 && text[i] != part[matched]) matched = borders[matched];
    if (text[i] == part[matched]) ++matched;
    if (matched == n) return i + 1;
  }
  return 0;
}

}  // namespace

size_t find_text(std::string_view text, std::string_view part) {
  if (is_small(text, part)) return text.find(part);
  const size_t end = end_of_first(text.begin(), text.size(), part.begin(), part.size());
  return end ? end - part.size() : text.npos;
}

size_t find_last_text(std::string_view text, std::string_view part) {
  if (is_small(text, part)) return text.rfind(part);
  const size_t end = end_of_first(text.rbegin(), text.size(), part.rbegin(), part.size());
  return end ? text.size() - end : text.npos;
}

}  // namespace skiff::jinja

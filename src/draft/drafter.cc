#include "draft/drafter.h"

#include "base/check.h"

namespace skiff::draft {

std::vector<Token> continuation(std::span<const Token> text, int begin, int most) {
  const auto size = std::ssize(text);
  SKIFF_CHECK(begin > 0 && begin < size, "{} of {} tokens", begin, size);
  std::vector<Token> out;
  for (int64_t i = begin; std::ssize(out) < most; ++i) {
    const Token next = i < size ? text[static_cast<size_t>(i)] : out[static_cast<size_t>(i - size)];
    if (next == kBreak) break;
    out.push_back(next);
  }
  return out;
}

}  // namespace skiff::draft

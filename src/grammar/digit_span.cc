#include "grammar/digit_span.h"

#include <array>

namespace skiff::grammar {

ExprId digit_span(ExprSet& exprs, const std::vector<int>& low, const std::vector<int>& high,
                  int min, int max, const std::function<ExprId(int, int)>& leaf) {
  // From the last digit to the first: the tails that are free, above `low`, below `high`, or both.
  enum Tail { kFree, kAbove, kBelow, kBetween };
  std::array<ExprId, 4> tails = {kEmpty, kEmpty, kEmpty, kEmpty};
  for (size_t i = low.size(); i-- > 0;) {
    const int l = low[i], h = high[i];
    const auto part = [&](int from, int to, Tail tail) {
      return from > to ? kNothing : exprs.concat(leaf(from, to), tails[tail]);
    };
    const ExprId free = part(min, max, kFree);
    const ExprId above = exprs.alt({part(l, l, kAbove), part(l + 1, max, kFree)});
    const ExprId below = exprs.alt({part(min, h - 1, kFree), part(h, h, kBelow)});
    const ExprId between =
        l == h ? part(l, l, kBetween)
               : exprs.alt({part(l, l, kAbove), part(l + 1, h - 1, kFree), part(h, h, kBelow)});
    tails = {free, above, below, between};
  }
  return tails[kBetween];
}

}  // namespace skiff::grammar

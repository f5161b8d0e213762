#include "sample/verdict.h"

#include <algorithm>
#include <cmath>

namespace skiff::sample {
namespace {

// Returns the place of the draft among the best tokens, or their number if it is not there or
// cannot be drawn.
size_t place_of(const CheckedRow& row) {
  const auto place = static_cast<size_t>(std::ranges::find(row.best, row.draft) - row.best.begin());
  const bool possible = place < row.best.size() && std::isfinite(row.best_logprobs[place]);
  return possible ? place : row.best.size();
}

// Returns how many of the best tokens top_p keeps. As in FastDeploy it is none where they all do
// not reach it; a top_p of 1 keeps all.
size_t kept_by_top_p(const CheckedRow& row, float top_p) {
  if (top_p >= 1) return row.best.size();
  double mass = 0;
  for (size_t i = 0; i < row.best_logprobs.size(); ++i) {
    mass += std::exp(static_cast<double>(row.best_logprobs[i]));
    if (mass >= static_cast<double>(top_p)) return i + 1;
  }
  return 0;
}

bool is_best(const CheckedRow& row) { return !row.best.empty() && row.best[0] == row.draft; }

// Returns how many drafts from the first one of `rows` on are kept together.
size_t kept_by_window(const DraftCheck& check, float top_p, std::span<const CheckedRow> rows) {
  const auto window = static_cast<size_t>(check.window);
  const size_t place = place_of(rows[0]);
  if (place < kept_by_top_p(rows[0], top_p)) return 1;
  if (place != 1 || rows[0].best.size() < 2 || rows.size() <= window) return 0;
  return std::ranges::all_of(rows.subspan(1, window), is_best) ? 1 + window : 0;
}

bool nearly_best(const DraftCheck& check, const CheckedRow& row) {
  const size_t place = place_of(row);
  if (place >= row.best.size()) return false;
  return std::exp(row.best_logprobs[place]) >= std::exp(row.best_logprobs[0]) - check.delta;
}

}  // namespace

int drafts_kept(const DraftCheck& check, const DraftParams& params,
                std::span<const CheckedRow> rows) {
  const bool by_window =
      check.rule == DraftRule::kTopP && params.temperature > 0 && params.top_p > 0;
  bool thinking = params.thinking;
  size_t kept = 0;
  while (kept < rows.size()) {
    const CheckedRow& row = rows[kept];
    size_t more = row.drawn == row.draft ? 1 : 0;
    if (more == 0 && by_window) more = kept_by_window(check, params.top_p, rows.subspan(kept));
    if (more == 0 && check.rule == DraftRule::kRelaxed && thinking) more = nearly_best(check, row);
    if (more == 0) break;
    for (size_t i = 0; i < more; ++i) thinking = thinks(check, thinking, rows[kept++].draft);
  }
  return static_cast<int>(kept);
}

}  // namespace skiff::sample

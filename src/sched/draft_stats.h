// sched/draft_stats.h -- how many drafts were checked, and how many kept. Counters only grow.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

namespace skiff::sched {

struct DraftStats {
  static constexpr size_t kDepths = 16;  // the last counts deeper ones, too
  uint64_t checks = 0;                   // draws of sequences with drafts behind them
  uint64_t drafted = 0, kept = 0;        // drafts that were checked, and those in a text
  std::array<uint64_t, kDepths> drafted_at{}, kept_at{};  // the same for each depth

  void count(int drafts, int kept_drafts) {
    if (drafts == 0) return;
    ++checks;
    drafted += static_cast<uint64_t>(drafts);
    kept += static_cast<uint64_t>(kept_drafts);
    for (size_t i = 0; i < static_cast<size_t>(drafts); ++i) {
      ++drafted_at[std::min(i, kDepths - 1)];
      kept_at[std::min(i, kDepths - 1)] += i < static_cast<size_t>(kept_drafts);
    }
  }
  DraftStats& operator+=(const DraftStats& other) {
    checks += other.checks;
    drafted += other.drafted;
    kept += other.kept;
    for (size_t i = 0; i < kDepths; ++i) {
      drafted_at[i] += other.drafted_at[i];
      kept_at[i] += other.kept_at[i];
    }
    return *this;
  }
  bool operator==(const DraftStats&) const = default;
};

}  // namespace skiff::sched

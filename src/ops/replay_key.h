// ops/replay_key.h -- what recorded work is known by.
#pragma once
#include <compare>

namespace skiff {

// Work with equal keys starts the same operations on the same addresses.
struct ReplayKey {
  int rows = 0;          // of the step, padding included
  int rows_per_seq = 1;  // the same number for every sequence: 1 + drafts
  int variant = 0;       // tells apart works that have the same rows and differ in anything else
  auto operator<=>(const ReplayKey&) const = default;
};

}  // namespace skiff

// ops/replay_key.h -- the key of recorded work.
#pragma once
#include <compare>

namespace skiff {

// Work with equal keys starts the same operations on the same addresses.
struct ReplayKey {
  int rows = 0;          // rows of the step, including padding
  int rows_per_seq = 1;  // the same number for every sequence: 1 + drafts
  int variant = 0;       // distinguishes work that has the same rows but differs otherwise
  auto operator<=>(const ReplayKey&) const = default;
};

}  // namespace skiff

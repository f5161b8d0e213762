// ops/cuda/sampling/notes.cuh -- what the pass over a row leaves for the choice of its token. The
// pass keeps a cluster of blocks busy, the choice is short and lonely: so it is a kernel of its
// own, for all rows at once.
#pragma once
#include "ops/cuda/sampling/windows.cuh"

namespace skiff::cuda {

constexpr int kSlots = kBlocks * kPassWarps;  // warps that have gone through the row
constexpr int kWarpRoom = 192;                // tokens that a warp may list

struct Notes {
  uint64_t tokens[kSlots][kWarpRoom];             // in the windows, as ranked()
  uint64_t over_cut[kSlots], over_drawn[kSlots];  // mass above the windows
  uint32_t n_over_cut[kSlots];
  uint32_t listed[kSlots];  // more than kWarpRoom: the rest is missing
  uint64_t total, left;     // mass of the row, and of what min_p leaves of it, in units_of()
  Plan plan;
  Windows windows;
  float best;
  bool done;    // the token is found
  bool broken;  // there is NaN
};

}  // namespace skiff::cuda

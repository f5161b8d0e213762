// ops/cuda/sampling/pass_result.cuh -- the result of the pass over a row, from which its token is
// chosen. The pass keeps a cluster of blocks busy, while the choice is short and needs one block:
// so it is a kernel of its own, for all rows at once.
#pragma once
#include "ops/cuda/sampling/windows.cuh"

namespace skiff::cuda {

constexpr int kSlots = kBlocks * kPassWarps;  // the warps that pass over a row have a slot each
constexpr int kWarpRoom = 192;                // tokens that a warp can list

struct PassResult {
  uint64_t tokens[kSlots][kWarpRoom];             // in the windows, as ranked()
  uint64_t over_cut[kSlots], over_drawn[kSlots];  // mass above the windows
  uint32_t n_over_cut[kSlots];
  uint32_t listed[kSlots];  // more than kWarpRoom where the list is incomplete
  uint64_t total, left;     // mass of the row, and of the tokens that min_p leaves, in units_of()
  Plan plan;
  Windows windows;
  float best;
  bool done;    // the token has been chosen
  bool broken;  // the row has NaN
};

}  // namespace skiff::cuda

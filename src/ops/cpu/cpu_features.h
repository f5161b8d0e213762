// ops/cpu/cpu_features.h -- the instruction sets that this machine can run, detected once.
#pragma once
#include <vector>

#include "ops/cpu/isa/kernels.h"

namespace skiff::cpu {

// Returns the best set that processor and operating system offer. Also requests the AMX tile
// registers from Linux, which grants them for the life of the process.
Isa best_isa();
// Returns every set that this machine can run, from kBaseline up.
std::vector<Isa> available_isas();

// Returns the inner loops for `isa`, which must be available.
Kernels kernels_for(Isa isa);

}  // namespace skiff::cpu

// ops/cpu/cpu_features.h -- what this machine can run, asked once.
#pragma once
#include <vector>

#include "ops/cpu/isa/kernels.h"

namespace skiff::cpu {

// The best set that processor and operating system offer. Asks Linux for the AMX tile registers
// on the way, which lasts for the life of the process.
Isa best_isa();
// Every set this machine can run, from kBaseline up.
std::vector<Isa> available_isas();

// The inner loops for `isa`, which must be available.
Kernels kernels_for(Isa isa);

}  // namespace skiff::cpu

#include "ops/cpu/isa/vec_baseline.h"
// The table is written in terms of the vector type above.
#include "ops/cpu/isa/table_body.h"

namespace skiff::cpu {

constinit const Kernels kKernelsBaseline = table(Isa::kBaseline, "baseline");

}  // namespace skiff::cpu

#include "ops/cpu/isa/vec_avx512.h"
// The table is written in terms of the vector type above.
#include "ops/cpu/isa/table_body.h"

namespace skiff::cpu {

constinit const Kernels kKernelsAvx512 = table(Isa::kAvx512, "avx512");

}  // namespace skiff::cpu

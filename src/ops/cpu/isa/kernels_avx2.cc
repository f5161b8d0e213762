#include "ops/cpu/isa/vec_avx2.h"
// The table is written in terms of the vector type above.
#include "ops/cpu/isa/table_body.h"

namespace skiff::cpu {

constinit const Kernels kKernelsAvx2 = table(Isa::kAvx2, "avx2");

}  // namespace skiff::cpu

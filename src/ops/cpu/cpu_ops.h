// ops/cpu/cpu_ops.h -- the cpu backend with explicit choices; make_cpu_ops(int) of ops/ops.h takes
// the best available.
#pragma once
#include <memory>
#include <optional>

#include "ops/cpu/isa/kernels.h"
#include "ops/ops.h"

namespace skiff {

struct CpuOptions {
  int threads = 0;              // 0: one per processor that this process may use
  std::optional<cpu::Isa> isa;  // empty: the best available; results differ between sets in the
                                // last bits, never between thread counts
};
std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options);

}  // namespace skiff

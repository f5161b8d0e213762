#include "ops/cuda/quant/direct_float8.cuh"

#include "ops/cuda/quant/direct_float8.h"
#include "ops/cuda/quant/float8_call.h"

namespace skiff::cuda::direct {
namespace {

constexpr size_t kAlign = 1024;

}  // namespace

void allow_float8_direct_kernels() {
  const size_t bytes = kAlign + shared_bytes(kFloat8Division, kMostXBytes);
  allow_shared(direct_float8_kernel<false>, bytes);
  allow_shared(direct_float8_kernel<true>, bytes);
}

void start_float8_direct(const Linear& w, const DirectArgs& args, bool gated, const MetRows& met,
                         Launch how) {
  how.shared += kAlign;
  launch(gated ? direct_float8_kernel<true> : direct_float8_kernel<false>, how,
         float8::weight_map(w, gated, kFloat8Height), args, float8::args_of(w, met));
}

}  // namespace skiff::cuda::direct

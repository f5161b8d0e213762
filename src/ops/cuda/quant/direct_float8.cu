#include "ops/cuda/quant/direct_float8.cuh"

#include "ops/cuda/linear/shape.h"
#include "ops/cuda/quant/direct_float8.h"
#include "ops/cuda/quant/float8_call.h"

namespace skiff::cuda::direct {
namespace {

constexpr size_t kAlign = 1024;

float8::Float8Args channel_args(const Linear& w, const MetRows& met) {
  return {.scales = w.scale.as<float>(),
          .up_row = static_cast<int>(features(w) / 2),
          .x_scales = met.chunk_scales};
}

}  // namespace

void allow_float8_direct_kernels() {
  const size_t bytes = kAlign + shared_bytes(kFloat8Division, kMostXBytes);
  for (const auto kernel : {direct_float8_kernel<false, false>, direct_float8_kernel<true, false>,
                            direct_float8_kernel<false, true>, direct_float8_kernel<true, true>})
    allow_shared(kernel, bytes);
}

void start_float8_direct(const Linear& w, const DirectArgs& args, bool gated, const MetRows& met,
                         Launch how) {
  how.shared += kAlign;
  const CUtensorMap map = float8::weight_map(w, gated, kFloat8Height);
  if (is_float8_channels(w))
    return launch(gated ? direct_float8_kernel<true, true> : direct_float8_kernel<false, true>, how,
                  map, args, channel_args(w, met));
  launch(gated ? direct_float8_kernel<true, false> : direct_float8_kernel<false, false>, how, map,
         args, float8::args_of(w, met));
}

}  // namespace skiff::cuda::direct

#include "ops/cuda/quant/float8_call.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/hopper/tensor_map.h"
#include "ops/cuda/quant/atom_call.h"
#include "ops/cuda/quant/float8_kernel.cuh"
#include "ops/cuda/quant/float8_rows.h"

namespace skiff::cuda::float8 {
namespace {

// Calls f(kernel, which it is, bytes of shared memory) for each kernel.
template <class F>
void for_each_kernel(F f) {
  const auto with = [&]<int N, int kTiles>() {
    constexpr size_t kBytes = Float8Ring<N, kTiles>::kSharedBytes;
    f(float8_kernel<N, false, kTiles, false>, Float8Kind{N, false, kTiles}, kBytes);
    f(float8_kernel<N, true, kTiles, false>, Float8Kind{N, true, kTiles}, kBytes);
    if constexpr (kTiles == 2)
      f(float8_kernel<N, true, kTiles, true>, Float8Kind{N, true, kTiles, true}, kBytes);
  };
  with.template operator()<8, 1>();
  with.template operator()<16, 1>();
  with.template operator()<32, 1>();
  with.template operator()<64, 1>();
  with.template operator()<128, 1>();
  with.template operator()<128, 2>();
}

}  // namespace

CUtensorMap weight_map(const Linear& w, bool gated, int height) {
  const auto experts = static_cast<uint64_t>(std::max<int64_t>(1, w.experts));
  const auto rows = static_cast<uint64_t>(features(w)), row = static_cast<uint64_t>(inputs(w)),
             all = rows * row;
  const auto high = static_cast<uint32_t>(height);
  if (gated) {
    const uint64_t size[] = {row / 2, 8, 2, rows / 16, experts},
                   stride[] = {row, all / 2, 8 * row, all};
    const uint32_t box[] = {kColumns / 2, 8, 2, high / 16, 1};
    return tensor_map(w.weight.data, size, stride, box, L2Line::k128);
  }
  const uint64_t size[] = {row / 2, rows, 1, 1, experts}, stride[] = {row, all, all, all};
  const uint32_t box[] = {kColumns / 2, high, 1, 1, 1};
  return tensor_map(w.weight.data, size, stride, box, L2Line::k128);
}

Float8Args args_of(const Linear& w, const MetRows& met) {
  const Float8Rows rows = float8_rows_of(w);
  return {.scales = w.scale.as<float>(),
          .scale_stride = rows.scale_stride(),
          .expert_scales = rows.scale_rows() * rows.scale_stride(),
          .up_row = static_cast<int>(rows.out / 2 / Float8Rows::kBlock),
          .x_scales = met.chunk_scales,
          .x_scale_stride = met.chunk_stride};
}

void allow_float8_kernels() {
  for_each_kernel([](auto kernel, const Float8Kind&, size_t bytes) {
    allow_shared(kernel, bytes);
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100),
          "asking for shared memory");
  });
}

void start_float8(const Float8Launch& how, const StreamArgs& args, const MetRows& met,
                  const Linear& w, const MetRows& out) {
  Float8Args q = args_of(w, met);
  q.out_scales = const_cast<float*>(out.chunk_scales);
  q.out_scale_stride = out.chunk_stride;
  q.out_pitch = out.x.row_stride;
  bool started = false;
  for_each_kernel([&](auto kernel, const Float8Kind& kind, size_t bytes) {
    if (kind != how.kind) return;
    launch(kernel, {how.blocks, kFloat8Threads, bytes, how.stream},
           weight_map(w, kind.gated, kTileRows), atoms::row_map(met.x, full_box_rows(kind.rows)),
           args, q);
    started = true;
  });
  SKIFF_CHECK(started, "no kernel for jobs of {} rows and {} tiles", how.kind.rows, how.kind.tiles);
}

}  // namespace skiff::cuda::float8

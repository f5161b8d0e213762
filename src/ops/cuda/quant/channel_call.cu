#include "ops/cuda/quant/channel_call.h"

#include "base/check.h"
#include "ops/cuda/align.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/quant/atom_call.h"
#include "ops/cuda/quant/channel_kernel.cuh"
#include "ops/cuda/quant/float8_call.h"
#include "ops/cuda/quant/float8_channels.h"

namespace skiff::cuda::channels {
namespace {

// Calls f(kernel, rows of a job, gated, bytes of shared memory) for each kernel.
template <class F>
void for_each_kernel(F f) {
  const auto with = [&]<int N>() {
    f(channel_kernel<N, false>, N, false, ChannelRing<N>::kSharedBytes);
    f(channel_kernel<N, true>, N, true, ChannelRing<N>::kSharedBytes);
  };
  with.template operator()<8>();
  with.template operator()<16>();
  with.template operator()<32>();
  with.template operator()<64>();
  with.template operator()<128>();
}

ChannelArgs args_of(const ChannelCall& call, const Linear& w, const ChannelShape& shape) {
  const Tensor& out = call.out;
  return {.rows = static_cast<int>(out.rows()),
          .chunks = static_cast<int>(inputs(w) / kColumns),
          .jobs = static_cast<int>(pieces_of(out.rows(), shape.rows)),
          .splits = shape.splits,
          .scales = w.scale.as<float>(),
          .x_scales = call.x.scales,
          .out = out.data,
          .out_stride = out.row_stride,
          .out_f32 = out.dtype == DType::kF32,
          .out_lines = out.dtype == DType::kBF16 && out.cols() % 8 == 0 && is_aligned(out),
          .features = static_cast<int>(out.cols()),
          .bias = w.bias ? w.bias.as<float>() : nullptr,
          .act = call.act};
}

}  // namespace

void allow_channel_kernels() {
  for_each_kernel([](auto kernel, int, bool, size_t bytes) {
    allow_shared(kernel, bytes);
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100),
          "asking for shared memory");
  });
}

void start_channels(const ChannelCall& call, const Linear& w, const ChannelShape& shape,
                    cudaStream_t stream) {
  if (call.out.rows() == 0) return;
  SKIFF_CHECK(is_float8_channels(w) && (!call.gated || !w.bias));
  const ChannelArgs args = args_of(call, w, shape);
  const int64_t tiles = pieces_of(features(w), kTileRows);
  bool started = false;
  for_each_kernel([&](auto kernel, int rows, bool gated, size_t bytes) {
    if (rows != shape.rows || gated != call.gated) return;
    launch(kernel,
           {.grid = dim3(static_cast<unsigned>(tiles * args.jobs * args.splits)),
            .block = dim3(kThreads),
            .shared = bytes,
            .stream = stream,
            .cluster = static_cast<unsigned>(args.splits)},
           float8::weight_map(w, gated, kTileRows),
           atoms::row_map(call.x.x, streamed::full_box_rows(rows)), args);
    started = true;
  });
  SKIFF_CHECK(started, "no kernel for jobs of {} rows", shape.rows);
}

}  // namespace skiff::cuda::channels

// ops/cuda/linear/stream_start.cuh -- stream_kernels.h for one kind of kernels, gated or not.
#pragma once
#include "base/check.h"
#include "ops/cuda/linear/stream_kernel.cuh"
#include "ops/cuda/linear/stream_kernels.h"

namespace skiff::cuda::streamed {

// Calls f(kernel, rows, whether it sums in pieces).
template <bool kGated, class F>
void for_each_kernel(F f) {
  f(stream_kernel<8, kGated, false>, 8, false), f(stream_kernel<16, kGated, false>, 16, false);
  f(stream_kernel<32, kGated, false>, 32, false), f(stream_kernel<64, kGated, false>, 64, false);
  f(stream_kernel<128, kGated, false>, 128, false), f(stream_kernel<128, kGated, true>, 128, true);
  f(stream_kernel<256, kGated, false>, 256, false), f(stream_kernel<256, kGated, true>, 256, true);
}

template <bool kGated>
void allow_stream_kernels() {
  for_each_kernel<kGated>([](auto kernel, int rows, bool) {
    allow_shared(kernel, shared_bytes(rows));
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100),
          "asking for shared memory");
  });
}

template <bool kGated>
void start_stream(int rows, const Launch& how, const CUtensorMap& weights, const CUtensorMap& x,
                  const StreamArgs& args) {
  bool started = false;
  for_each_kernel<kGated>([&](auto kernel, int of, bool pieces) {
    if (of != rows || pieces != (args.cut > 0)) return;
    launch(kernel, how, weights, x, args);
    started = true;
  });
  SKIFF_CHECK(started, "no kernel for jobs of {} rows{}", rows, args.cut > 0 ? " in pieces" : "");
}

}  // namespace skiff::cuda::streamed

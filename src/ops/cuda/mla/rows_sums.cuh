// ops/cuda/mla/rows_sums.cuh -- sums of weights, over 8-bit rows, by the warpgroups that multiply
// values: of the weights as they are multiplied, rounded to f16.
#pragma once
#include "ops/cuda/float8_half.cuh"
#include "ops/cuda/mla/attend_scores.cuh"
#include "ops/cuda/mla/rows_shape.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda::latent {

// Threads of a vector, neighbours, each of which adds weights of a part of the positions. The two
// warpgroups have half of the positions each.
template <class Tiles>
constexpr int kSharers = kGroupThreads / Tiles::kVectors;

template <class Tiles>
__device__ __forceinline__ float sum_weights(const uint8_t* weights, int which) {
  constexpr int kParts = kLatentTile / 2 / 4 / kSharers<Tiles>;  // a part is four positions
  const int thread = thread_of<Tiles>(), vector = thread / kSharers<Tiles>;
  float total = 0;
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const int part = which * 8 + thread % kSharers<Tiles> * kParts + i;
    const auto x =
        *reinterpret_cast<const uint2*>(weights + swizzled(vector, part / 2) + part % 2 * 8);
    total += sum_of_half(x.x) + sum_of_half(x.y);
  }
  return total;
}

template <class Tiles>
__device__ __forceinline__ float sum_of_sharers(float sum) {
#pragma unroll
  for (int mask = 1; mask < kSharers<Tiles>; mask *= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, mask);
  return sum;
}

}  // namespace skiff::cuda::latent

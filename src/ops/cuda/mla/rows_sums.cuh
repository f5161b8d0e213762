// ops/cuda/mla/rows_sums.cuh -- sums of a tile's weights, over 8-bit rows, which tensor cores add:
// f16 numbers are exact there, and two instructions and a load are fewer than any other way takes.
#pragma once
#include "ops/cuda/mla/attend_scores.cuh"
#include "ops/cuda/mla/rows_shape.cuh"
#include "ops/cuda/mma.cuh"

namespace skiff::cuda::latent {

// Adds 16 elements of each of eight rows: x and y have elements 2 * (lane % 4) and the next of row
// lane / 4, of the first eight and of the last; sums are those of rows 2 * (lane % 4) and the next.
// A product with 16 rows of ones of which one half is used.
__device__ __forceinline__ void add_rows_half(float (&sums)[2], uint32_t x, uint32_t y) {
  constexpr uint32_t kOnes = 0x3c003c00;
  asm("{.reg .f32 p, q;\n"
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, p, q}, {%4, %5, %4, %5}, "
      "{%2, %3}, {%0, %1, %6, %6};}"
      : "+f"(sums[0]), "+f"(sums[1])
      : "r"(x), "r"(y), "r"(kOnes), "r"(0), "f"(0.0f));
}

// Sums of weights: a warp adds those of eight vectors at a time, or of two eights, and each
// warpgroup has half of the positions. Tensor cores add, in two instructions for eight, as products
// with ones. Of 16 vectors, two warps have the same.
template <class Tiles>
struct WeightSums {
  static constexpr int kEights = Tiles::kVectors <= 32 ? 1 : 2;
  float of[kEights][2];

  __device__ __forceinline__ static int first_vector(int eight) {
    return (thread_of<Tiles>() / 32 * kEights + eight) * 8 % Tiles::kVectors;
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& eight : of) eight[0] = eight[1] = 0;
  }
  __device__ __forceinline__ void rescale(const float* of_vector) {
#pragma unroll
    for (int e = 0; e < kEights; ++e) {
      const float* keep = of_vector + first_vector(e) + thread_of<Tiles>() % 4 * 2;
      of[e][0] *= keep[0], of[e][1] *= keep[1];
    }
  }
  __device__ __forceinline__ void add(const uint8_t* weights, int which) {
    const int lane = thread_of<Tiles>() % 32;
#pragma unroll
    for (int e = 0; e < kEights; ++e) {
      const int at = swizzled(first_vector(e) + lane % 8, which * 4 + lane / 8);
      uint32_t x[4];
      load_matrices(x, shared_address(weights + at));
      add_rows_half(of[e], x[0], x[1]);
      add_rows_half(of[e], x[2], x[3]);
    }
  }
  __device__ __forceinline__ void store(float* to) const {
    const int thread = thread_of<Tiles>(), lane = thread % 32;
    if (lane >= 4 || thread / 32 * 8 >= Tiles::kVectors) return;
#pragma unroll
    for (int e = 0; e < kEights; ++e)
      to[first_vector(e) + lane * 2] = of[e][0], to[first_vector(e) + lane * 2 + 1] = of[e][1];
  }
};

}  // namespace skiff::cuda::latent

// ops/cuda/linear/stream_lines.cuh -- the streamed GEMM's outputs on their way through shared
// memory, so that whole lines are written: sums have weight rows where outputs have columns, and a
// thread alone holds two bytes of a line. PTX ISA, "stmatrix".
#pragma once
#include <cuda_bf16.h>

#include "ops/cuda/hopper/barrier.cuh"
#include "ops/cuda/linear/stream_args.cuh"
#include "ops/cuda/linear/stream_walk.cuh"
#include "ops/cuda/math.cuh"

namespace skiff::cuda::streamed {

// Writes four matrices of 8 x 8 elements transposed. Lane l gives the address of row l % 8 of
// matrix l / 8; its registers hold the pairs (row l / 4, columns 2 * (l % 4) and the next) of each
// before that.
__device__ __forceinline__ void store_matrices_transposed(uint32_t to, const uint32_t (&pairs)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}

// A warpgroup's two buffers, each for kLineRows rows of its columns. While one is read the other is
// written, so that one barrier for each is enough.
class LineStaging {
 public:
  // `memory`: of both warpgroups. Called by the warps that multiply.
  __device__ explicit LineStaging(char* memory)
      : buffers_(memory + threadIdx.x / 128 * (2 * kOutBytes)) {}

  __device__ char* next() {
    turn_ ^= 1;
    return buffers_ + turn_ * kOutBytes;
  }

 private:
  char* buffers_;
  int turn_ = 0;
};

// Rows of outputs in one buffer: kWide columns of bf16, and 16 bytes against bank conflicts.
template <int kWide>
struct LineBuffer {
  static constexpr int kPitch = kWide * 2 + 16;
  static_assert(kLineRows * kPitch <= kOutBytes);

  char* memory;

  // Stores `pairs`, four matrices of 8 columns of outputs by 8 rows, where matrix m begins at row
  // row_of(m) and column column_of(m).
  template <class RowOf, class ColumnOf>
  __device__ void store(const uint32_t (&pairs)[4], RowOf row_of, ColumnOf column_of) const {
    const int lane = threadIdx.x % 32, matrix = lane / 8;
    const int row = row_of(matrix) + lane % 8;
    store_matrices_transposed(shared_address(memory + row * kPitch + 2 * column_of(matrix)), pairs);
  }

  // Copies rows [0, rows) to out, whose column of the first one here is `first`, as far as it has
  // `features`. `lines`: rows of out can be written 16 bytes at a time. All threads of the
  // warpgroup.
  __device__ void copy(__nv_bfloat16* out, int64_t stride, int first, int features, int rows,
                       bool lines) const {
    if (lines)
      copy_pieces<uint4>(out, stride, first, features, rows);
    else
      copy_pieces<__nv_bfloat16>(out, stride, first, features, rows);
  }

 private:
  template <class Piece>
  __device__ void copy_pieces(__nv_bfloat16* out, int64_t stride, int first, int features,
                              int rows) const {
    constexpr int kEach = sizeof(Piece) / 2, kPieces = kWide / kEach;
#pragma unroll(kEach > 1 ? kLineRows * kPieces / 128 : 1)
    for (int i = 0; i < kLineRows * kPieces / 128; ++i) {
      const int piece = i * 128 + static_cast<int>(threadIdx.x % 128);
      const int row = piece / kPieces, at = piece % kPieces * kEach;
      if (row >= rows || first + at >= features) continue;
      *reinterpret_cast<Piece*>(out + row * stride + first + at) =
          *reinterpret_cast<const Piece*>(memory + row * kPitch + 2 * at);
    }
  }
};

}  // namespace skiff::cuda::streamed

// ops/cuda/quant/direct_atoms.cuh -- products of a few rows with weights that lie as atoms.h says.
#pragma once
#include <cuda_bf16.h>

#include "ops/cuda/mma.cuh"
#include "ops/cuda/quant/atom_args.cuh"
#include "ops/cuda/quant/direct_kernel.cuh"
#include "ops/cuda/quant/fragments.cuh"
#include "ops/cuda/quant/shared_loads.cuh"

namespace skiff::cuda::direct {

using atoms::AtomArgs;

template <Codes kCodes, int kGroups, bool kGated>
class Atoms {
 public:
  static constexpr int kWords = kCodes == Codes::kFour ? 1 : 2;  // 16-byte words of a lane
  // A stage has a chunk of two atoms, each with the scales of its rows at most.
  static constexpr int kStageBytes = 2 * (kWords * 512 + (kGroups > 0 ? kGroups * 32 : 0));
  static constexpr int kXBytes = 2 * kAtomWidth;

  struct Cursor {
    const std::byte* from = nullptr;
  };
  struct Scales {
    float first, second;
  };
  // A lane holds its part of both atoms of a chunk, and their scales where they lie there.
  struct Chunk {
    uint4 words[2][kWords];
    float scale[2];
  };

  __device__ explicit Atoms(const AtomArgs& q)
      : q_(q), lane_(threadIdx.x % 32), base_(atoms::base_pair(q.fixed_zero)) {}

  __device__ Cursor begin(const Item& item, int chunk) const {
    return {q_.atoms + item.expert * q_.matrix_bytes + chunk * q_.chunk_bytes +
            int64_t{kGated ? item.pair : 2 * item.pair} * atom_bytes()};
  }
  __device__ void copy(Cursor& c, uint32_t to, uint32_t full) const {
    const int bytes = atom_bytes();
    barrier_expect(full, 2 * bytes);
    if constexpr (kGated) {
      copy_bytes(to, c.from, bytes, full, Keep::kFirstToGo);
      copy_bytes(to + bytes, c.from + int64_t{q_.up_atoms} * bytes, bytes, full, Keep::kFirstToGo);
    } else {
      copy_bytes(to, c.from, 2 * bytes, full, Keep::kFirstToGo);
    }
    c.from += q_.chunk_bytes;
  }

  template <class RowOf>
  __device__ Scales scales_of(const Item& item, int /*chunk*/, RowOf) const {
    if (kGroups > 0) return {1, 1};
    const float* scales = q_.row_scales + item.expert * q_.padded_rows + lane_ / 4;
    return {scales[(kGated ? item.pair : 2 * item.pair) * kAtomHeight],
            scales[(kGated ? q_.up_atoms + item.pair : 2 * item.pair + 1) * kAtomHeight]};
  }

  __device__ __forceinline__ Chunk load(uint32_t stage) const {
    Chunk chunk;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t atom = stage + h * atom_bytes();
#pragma unroll
      for (int w = 0; w < kWords; ++w)
        chunk.words[h][w] = atoms::load_shared16(atom + w * 512 + lane_ * 16);
      if constexpr (kGroups > 0)
        chunk.scale[h] = atoms::load_scale(q_.scale, atom + q_.scales_at, /*group=*/0, lane_ / 4);
    }
    return chunk;
  }

  // Adds the products of a chunk, whose columns of x begin at `x`. Even and odd steps have sums of
  // their own, so that products wait less.
  __device__ __forceinline__ void multiply(float (&sum)[2][4], const Chunk& chunk, uint32_t x,
                                           const Scales&, bool) const {
    float group[2][4] = {};
    uint32_t columns[4];
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      if (step % 2 == 0) load_matrices(columns, x + step * 32);
      uint32_t w[4];
#pragma unroll
      for (int h = 0; h < 2; ++h)
        atoms::operands<kCodes>(w[h], w[2 + h], chunk.words[h][step / atoms::kLoadSteps<kCodes>],
                                step, base_);
      mma_bf16(kGroups > 0 ? group[step % 2] : sum[step % 2], w, columns[step % 2 * 2],
               columns[step % 2 * 2 + 1]);
    }
    if constexpr (kGroups > 0) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sum[0][i] = fmaf(group[0][i] + group[1][i], chunk.scale[i / 2], sum[0][i]);
    }
  }

 private:
  __device__ int atom_bytes() const { return kGroups > 0 ? q_.atom_bytes : kWords * 512; }

  const AtomArgs& q_;
  const int lane_;
  const uint32_t base_;
};

// Copies the rows of x to shared memory. Columns behind them are zeros.
__device__ __forceinline__ void stage_rows(char* to, const DirectArgs& a) {
  constexpr int kThreads = kWarps * 32, kAtOnce = 4;
  const int pieces = a.chunks * (2 * kAtomWidth / 16), filled = a.in / 8;
#pragma unroll 1
  for (int row = 0; row < a.rows; ++row) {
    const auto* from =
        reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(a.x) + row * a.x_stride);
    auto* at = reinterpret_cast<uint4*>(to + row * a.pitch);
#pragma unroll 1
    for (int first = static_cast<int>(threadIdx.x); first < pieces; first += kAtOnce * kThreads) {
      uint4 v[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int piece = first + i * kThreads;
        v[i] = piece < filled ? __ldcg(from + piece) : uint4{};
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int piece = first + i * kThreads;
        if (piece < pieces) at[piece] = v[i];
      }
    }
  }
}

template <Codes kCodes, int kGroups, bool kGated>
__global__ void __launch_bounds__(kWarps * 32, kBlocks)
    direct_kernel(const __grid_constant__ DirectArgs a, const __grid_constant__ AtomArgs q) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ uint4 dynamic[];
  char* memory = reinterpret_cast<char*>(dynamic);
  char* rows = memory + kWarps * kRingBytes;
  const Atoms<kCodes, kGroups, kGated> weights(q);
  work<kGated>(a, weights, memory, rows, [&] { stage_rows(rows, a); });
#endif
}

}  // namespace skiff::cuda::direct

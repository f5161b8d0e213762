// ops/cuda/quant/direct_atoms.cuh -- products of a few rows with weights that lie as atoms.h says.
//
// A lane multiplies the 16 bytes of an atom that lie there for it, so each lane copies its own
// bytes to the ring and waits for them alone (cp.async): no barrier, and no lane that issues copies
// for others. A warp takes 130 instructions for a chunk of four-bit codes, with one lane for all
// 220.
#pragma once
#include <cuda_bf16.h>

#include "ops/cuda/hopper/lane_copy.cuh"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/quant/atom_args.cuh"
#include "ops/cuda/quant/direct_kernel.cuh"
#include "ops/cuda/quant/fragments.cuh"
#include "ops/cuda/quant/shared_loads.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda::direct {

using atoms::AtomArgs;

constexpr Division division_of(Codes codes) {
  return codes == Codes::kFour ? kFourDivision : kEightDivision;
}
// The same beside other products.
constexpr Division beside_of(Codes codes) {
  return codes == Codes::kFour ? kFourBeside : kEightBeside;
}

template <Codes kCodes, int kGroups, bool kGated, int kWarps, int kRingBytes>
class LaneWorker : ItemWork<kWarps, kGated> {
  using Base = ItemWork<kWarps, kGated>;
  using Base::a_, Base::begin_, Base::end_, Base::lane_;
  using Base::exists, Base::is_listed, Base::item_from;

 public:
  static constexpr int kWords = kCodes == Codes::kFour ? 1 : 2;  // 16-byte words of a lane
  // A stage has a chunk of two atoms, each with the scales of its rows at most.
  static constexpr int kStageBytes = 2 * (kWords * 512 + (kGroups > 0 ? kGroups * 32 : 0));
  static constexpr int kStages = kRingBytes / kStageBytes;
  static constexpr int kXBytes = 2 * kAtomWidth;
  static_assert(kStages > 1);

  // `ring`: this warp's. `x`: the rows of x.
  __device__ LaneWorker(const DirectArgs& a, const AtomArgs& q, uint32_t ring, uint32_t x,
                        float4* sums)
      : Base(a, x, sums),
        q_(q),
        ring_(kept(ring + lane_ * 16)),
        base_(atoms::four_units(-static_cast<int>(q.fixed_zero))) {}

  // All of this warp's work: Worker::run().
  template <class F, class G>
  __device__ __forceinline__ void run(F wait, G stage_x) {
    const bool early = !is_listed() || a_.list_early;
    if (early) fill();
    wait();
    if (!early) fill();
    stage_x();
    uint32_t stage = ring_;
    int buffer = 0;
    for (Item item = item_from(0); exists(item); item = item_from(item.turn + 1)) {
      uint32_t x = kept(this->x_of(item) + begin_ * kXBytes);
      float sum[2][4] = {};
#pragma unroll 1
      for (int chunks = end_ - begin_; chunks > 0; --chunks, x += kXBytes) {
        wait_for_copies<kStages - 1>();
        if constexpr (kGroups > 0) __syncwarp();  // other lanes have copied scales
        const Chunk weights = load(stage);
        if constexpr (kGroups > 0) __syncwarp();
        copy_next(stage);
        multiply(sum, weights, x);
        stage += kStageBytes;
        if (stage == ring_ + kStages * kStageBytes) stage = ring_;
      }
      this->finish(sum, item, scales_of(item), buffer);
      buffer ^= 1;
    }
  }

 private:
  struct Scales {
    float first, second;
  };
  // A lane holds its part of both atoms of a chunk, and their scales where they lie there.
  struct Chunk {
    uint4 words[2][kWords];
    float scale[2];
  };

  __device__ __forceinline__ void fill() {
    next_item(item_from(0));
#pragma unroll 1
    for (int stage = 0; stage < kStages; ++stage) copy_next(ring_ + stage * kStageBytes);
  }
  __device__ __forceinline__ void next_item(const Item& item) {
    turn_ = item.turn;
    left_ = exists(item) ? end_ - begin_ : 0;
    from_ = q_.atoms + item.expert * q_.matrix_bytes + begin_ * q_.chunk_bytes +
            int64_t{kGated ? item.pair : 2 * item.pair} * atom_bytes() + lane_ * 16;
    if (kGroups == 0 && left_ > 0) prefetch_scales(item);
  }
  // Behind the item's last chunk its scales would have to come from memory while nothing else is to
  // be done.
  __device__ __forceinline__ void prefetch_scales(const Item& item) const {
#pragma unroll
    for (int second = 0; second < 2; ++second)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(row_scale(item, second)));
  }
  // Starts the copies of the chunk behind the last one that was copied, if there is one. Each chunk
  // has a group of copies, if need be an empty one.
  __device__ __forceinline__ void copy_next(uint32_t stage) {
    if (left_ > 0) {
      if constexpr (kGated) {
        copy_atoms<1>(stage, from_);
        copy_atoms<1>(stage + atom_bytes(), from_ + int64_t{q_.up_atoms} * atom_bytes());
      } else {
        copy_atoms<2>(stage, from_);
      }
      from_ += q_.chunk_bytes;
      if (--left_ == 0) next_item(item_from(turn_ + 1));
    }
    end_group_of_copies();
  }
  // Copies atoms that lie one behind the other; `from` is the lane's first piece.
  template <int kAtoms>
  __device__ __forceinline__ void copy_atoms(uint32_t to, const std::byte* from) const {
    constexpr int kRounds = kAtoms * kWords;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) copy_piece(to + i * 512, from + i * 512);
    if (kGroups > 0 && lane_ * 16 < kAtoms * atom_bytes() - kRounds * 512)
      copy_piece(to + kRounds * 512, from + kRounds * 512);
  }
  __device__ int atom_bytes() const { return kGroups > 0 ? q_.atom_bytes : kWords * 512; }

  // Where the lane finds the scale of its row of the item's first atom, and of its second.
  __device__ const float* row_scale(const Item& item, bool second) const {
    const int atom = kGated ? item.pair + (second ? q_.up_atoms : 0) : 2 * item.pair + second;
    return q_.row_scales + item.expert * q_.padded_rows + atom * kAtomHeight + lane_ / 4;
  }
  __device__ Scales scales_of(const Item& item) const {
    if (kGroups > 0) return {1, 1};
    return {*row_scale(item, false) * atoms::kScalesBy<kCodes>,
            *row_scale(item, true) * atoms::kScalesBy<kCodes>};
  }

  __device__ __forceinline__ Chunk load(uint32_t stage) const {
    Chunk chunk;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t atom = stage + h * atom_bytes();
#pragma unroll
      for (int w = 0; w < kWords; ++w) chunk.words[h][w] = atoms::load_shared16(atom + w * 512);
      if constexpr (kGroups > 0)
        chunk.scale[h] =
            atoms::load_scale(q_.scale, atom - lane_ * 16 + q_.scales_at, /*group=*/0, lane_ / 4) *
            atoms::kScalesBy<kCodes>;
    }
    return chunk;
  }

  // Adds the products of a chunk, whose columns of x begin at `x`. Even and odd steps have sums of
  // their own, so that products wait less.
  __device__ __forceinline__ void multiply(float (&sum)[2][4], const Chunk& chunk,
                                           uint32_t x) const {
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

  const AtomArgs& q_;
  const uint32_t ring_;  // where the lane's bytes of the first stage lie
  const uint32_t base_;
  // What is copied next: from where, how many chunks of the item, and which item it is.
  const std::byte* from_ = nullptr;
  int left_ = 0, turn_ = 0;
};

// Copies the rows of x to shared memory, with the pieces of several rows under way at once. Columns
// behind them are zeros.
template <int kThreads>
__device__ __forceinline__ void stage_rows(char* to, const DirectArgs& a) {
  constexpr int kAtOnce = 4;
  const int filled = a.in / 8;
  const auto* x = static_cast<const __nv_bfloat16*>(a.x);
  PieceWalk walk(static_cast<int>(threadIdx.x), kThreads, a.chunks * (2 * kAtomWidth / 16));
#pragma unroll 1
  while (walk.row < a.rows) {
    uint4 v[kAtOnce];
    uint4* at[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i, walk.next()) {
      const bool has = walk.row < a.rows;
      at[i] = has ? reinterpret_cast<uint4*>(to + walk.row * a.pitch) + walk.piece : nullptr;
      const auto* from = reinterpret_cast<const uint4*>(x + walk.row * a.x_stride) + walk.piece;
      v[i] = has && walk.piece < filled ? __ldcg(from) : uint4{};
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (at[i]) *at[i] = v[i];
  }
}

template <Codes kCodes, int kGroups, bool kGated, int kWarps, int kRingBytes>
__global__ void __launch_bounds__(kWarps * 32, 1)
    direct_kernel(const __grid_constant__ DirectArgs a, const __grid_constant__ AtomArgs q) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ uint4 dynamic[];
  __shared__ float4 sums[2 * kWarps * 32];
  char* memory = reinterpret_cast<char*>(dynamic);
  char* rows = memory + kWarps * kRingBytes;
  const uint32_t ring =
      shared_address(memory) + static_cast<uint32_t>(threadIdx.x) / 32 * kRingBytes;
  LaneWorker<kCodes, kGroups, kGated, kWarps, kRingBytes> worker(a, q, ring, shared_address(rows),
                                                                 sums);
  worker.run(
      [&] {
        wait_for_previous();
        let_next_start();
      },
      [&] {
        stage_rows<kWarps * 32>(rows, a);
        __syncthreads();
      });
#endif
}

}  // namespace skiff::cuda::direct

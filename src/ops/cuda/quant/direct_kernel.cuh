// ops/cuda/quant/direct_kernel.cuh -- the kernel of direct_args.h. PTX ISA, "cp.async".
#pragma once
#include <cuda_bf16.h>

#include "ops/cuda/activation.cuh"
#include "ops/cuda/hopper/copy.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/jobs.cuh"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/quant/atom_args.cuh"
#include "ops/cuda/quant/direct_args.h"
#include "ops/cuda/quant/fragments.cuh"
#include "ops/cuda/quant/shared_loads.cuh"
#include "ops/cuda/vector.cuh"

namespace skiff::cuda::direct {

using atoms::AtomArgs;

// Copies 16 bytes of a weight, which is read once.
__device__ __forceinline__ void copy_once(uint32_t to, const std::byte* from) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "l"(static_cast<uint64_t>(Keep::kFirstToGo))
               : "memory");
}
__device__ __forceinline__ void end_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most kLeft of the groups of this thread's copies are under way.
template <int kLeft>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}
template <Codes kCodes, int kGroups, bool kGated>
class Worker {
 public:
  static constexpr int kWords = kCodes == Codes::kFour ? 1 : 2;  // 16-byte words of a lane
  // A stage has a chunk of two atoms, each with the scales of its rows at most.
  static constexpr int kStageBytes = 2 * (kWords * 512 + (kGroups > 0 ? kGroups * 32 : 0));
  static constexpr int kStages = kRingBytes / kStageBytes;

  // `ring`: this warp's. `x`: the rows of x, with 16 bytes of zeros before them.
  __device__ Worker(const DirectArgs& a, const AtomArgs& q, uint32_t ring, uint32_t x, float4* sums)
      : a_(a),
        q_(q),
        ring_(ring),
        x_(x),
        sums_(sums),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32),
        base_(atoms::base_pair(q.fixed_zero)) {
    const int each = (a.chunks + a.split - 1) / a.split;
    begin_ = min(a.chunks, warp_ % a.split * each);
    end_ = min(a.chunks, begin_ + each);
  }

  // All of this warp's work. wait() returns when the kernels before this one are complete, for
  // which weights that need no list do not wait, and stage_x() when x is in shared memory.
  template <class F, class G>
  __device__ void run(F wait, G stage_x) {
    const bool early = !is_listed() || a_.list_early;
    if (early) fill();
    wait();
    if (!early) fill();
    stage_x();
    int stage = 0;
    for (int turn = 0; exists(item_of(turn)); ++turn) {
      const Item item = item_of(turn);
      const Scales scales = scales_of(item);
      float sum[2][4] = {};
      for (int chunk = begin_; chunk < end_; ++chunk) {
        wait_for_copies<kStages - 1>();
        __syncwarp();
        multiply(sum, item, chunk, ring_ + stage * kStageBytes);
        __syncwarp();
        copy_next(ring_ + stage * kStageBytes);
        if (++stage == kStages) stage = 0;
      }
      finish(sum, item, scales, turn);
    }
  }

 private:
  struct Item {
    int job, pair;
  };
  struct Scales {
    float first, second;
  };

  // The warp's item of a turn. There is none where the job is not below their number.
  __device__ Item item_of(int turn) const {
    const int slot = warp_ / a_.split + turn * (kWarps / a_.split);
    const int index = slot * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
    return {index / a_.pairs, index % a_.pairs};
  }
  __device__ bool exists(const Item& item) const { return item.job < a_.jobs.capacity; }
  __device__ bool is_listed() const { return a_.jobs.expert != nullptr; }
  __device__ int expert_of(const Item& item) const {
    return is_listed() ? expert_of_copy(a_.jobs, item.job) : 0;
  }
  __device__ Scales scales_of(const Item& item) const {
    if (kGroups > 0) return {1, 1};
    const float* scales = q_.row_scales + expert_of(item) * q_.padded_rows + lane_ / 4;
    return {scales[(kGated ? item.pair : 2 * item.pair) * kAtomHeight],
            scales[(kGated ? q_.up_atoms + item.pair : 2 * item.pair + 1) * kAtomHeight]};
  }

  // Starts the copies of the first kStages chunks.
  __device__ void fill() {
    next_item(0);
    for (int stage = 0; stage < kStages; ++stage) copy_next(ring_ + stage * kStageBytes);
  }
  __device__ void next_item(int turn) {
    copied_turn_ = turn;
    copied_chunk_ = begin_;
    const Item item = item_of(turn);
    if (!exists(item) || begin_ == end_) {
      from_ = nullptr;
      return;
    }
    from_ = q_.atoms + expert_of(item) * q_.matrix_bytes + begin_ * q_.chunk_bytes +
            int64_t{kGated ? item.pair : 2 * item.pair} * q_.atom_bytes;
  }
  // Starts the copy of the chunk behind the last one that was copied, if there is one. Stages are
  // counted by their groups of copies, so an empty one counts, too.
  __device__ void copy_next(uint32_t to) {
    if (from_ != nullptr) {
      const int64_t up = int64_t{kGated ? q_.up_atoms : 1} * q_.atom_bytes;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        for (int at = lane_ * 16; at < q_.atom_bytes; at += 512)
          copy_once(to + h * (kStageBytes / 2) + at, from_ + h * up + at);
      }
      from_ += q_.chunk_bytes;
      if (++copied_chunk_ == end_) next_item(copied_turn_ + 1);
    }
    end_copies();
  }

  // Adds the products of a chunk. Even and odd steps have sums of their own, so that products wait
  // less.
  __device__ __forceinline__ void multiply(float (&sum)[2][4], const Item& item, int chunk,
                                           uint32_t stage) const {
    uint4 words[2][kWords];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int w = 0; w < kWords; ++w)
        words[h][w] = atoms::load_shared16(stage + h * (kStageBytes / 2) + w * 512 + lane_ * 16);
    }
    float group[2][4] = {};
    uint32_t x[4];
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      if (step % 2 == 0) load_x(x, item, chunk * 128 + step * 16);
      uint32_t w[4];
#pragma unroll
      for (int h = 0; h < 2; ++h)
        atoms::operands<kCodes>(w[h], w[2 + h], words[h][step / atoms::kLoadSteps<kCodes>], step,
                                base_);
      mma_bf16(kGroups > 0 ? group[step % 2] : sum[step % 2], w, x[step % 2 * 2],
               x[step % 2 * 2 + 1]);
    }
    if constexpr (kGroups > 0) {
      const float scale[2] = {group_scale(stage), group_scale(stage + kStageBytes / 2)};
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sum[0][i] = fmaf(group[0][i] + group[1][i], scale[i / 2], sum[0][i]);
    }
  }

  __device__ float group_scale(uint32_t atom) const {
    return atoms::load_scale(q_.scale, atom + q_.scales_at, /*group=*/0, lane_ / 4);
  }

  // The operands of two steps, of 32 columns from `column` on. Rows that x does not have are zeros.
  __device__ void load_x(uint32_t (&to)[4], const Item& item, int column) const {
    const int row = lane_ % 8, piece = lane_ / 8;
    const bool has = is_listed() ? row == 0 : row < a_.rows;
    const int at = !is_listed() ? row : a_.one_row ? 0 : item.job;
    load_matrices(to, has ? x_ + 16 + at * a_.pitch + (column + piece * 8) * 2 : x_);
  }

  // Brings the sums of the warps that share the item together, scales and stores them.
  __device__ void finish(const float (&sum)[2][4], const Item& item, const Scales& scales,
                         int turn) const {
    float4 all = {sum[0][0] + sum[1][0], sum[0][1] + sum[1][1], sum[0][2] + sum[1][2],
                  sum[0][3] + sum[1][3]};
    if (a_.split > 1) {
      float4* mine = sums_ + turn % 2 * (32 * kWarps);
      mine[warp_ * 32 + lane_] = all;
      named_sync(1 + warp_ / a_.split, a_.split * 32);
      if (warp_ % a_.split != 0) return;
      all = {};
      for (int w = 0; w < a_.split; ++w) {
        const float4 one = mine[(warp_ + w) * 32 + lane_];
        all.x += one.x, all.y += one.y, all.z += one.z, all.w += one.w;
      }
    }
    const int feature = item.pair * (kGated ? 8 : 16) + lane_ / 4;
    put_column(all.x * scales.first, all.z * scales.second, item.job, feature, 0);
    put_column(all.y * scales.first, all.w * scales.second, item.job, feature, 1);
  }

  // Stores one row's outputs: of the item's first atom and of its second, or what a gate lets
  // through.
  __device__ void put_column(float first, float second, int job, int feature, int odd) const {
    const int column = 2 * (lane_ % 4) + odd;
    if (column >= (is_listed() ? 1 : a_.rows)) return;
    const int64_t to = (is_listed() ? job : column) * a_.out_stride + feature;
    if constexpr (kGated) {
      if (feature < a_.features) put(a_.out, a_.out_f32, to, activate(first, a_.act) * second);
    } else {
      if (feature < a_.features)
        put(a_.out, a_.out_f32, to, first + (a_.bias ? a_.bias[feature] : 0.0f));
      if (feature + 8 < a_.features)
        put(a_.out, a_.out_f32, to + 8, second + (a_.bias ? a_.bias[feature + 8] : 0.0f));
    }
  }

  const DirectArgs& a_;
  const AtomArgs& q_;
  const uint32_t ring_, x_;
  float4* const sums_;
  const int lane_, warp_;
  const uint32_t base_;
  int begin_, end_;  // chunks of each item
  // What is copied next.
  const std::byte* from_ = nullptr;  // null: there is nothing left
  int copied_turn_ = 0, copied_chunk_ = 0;
};

// Copies the rows of x to shared memory, behind 16 bytes of zeros. Columns behind them are zeros.
__device__ __forceinline__ void stage_rows(char* to, const DirectArgs& a) {
  const int pieces = a.pitch / 16, filled = a.in / 8;
  const auto* x = static_cast<const __nv_bfloat16*>(a.x);
  if (threadIdx.x == 0) *reinterpret_cast<uint4*>(to) = {};
  for (int row = 0; row < a.rows; ++row) {
    char* at = to + 16 + row * a.pitch;
#pragma unroll 4
    for (int piece = static_cast<int>(threadIdx.x); piece < pieces; piece += kWarps * 32) {
      uint4 v = {};
      if (piece < filled)
        v = __ldcg(reinterpret_cast<const uint4*>(x + row * a.x_stride + piece * 8));
      *reinterpret_cast<uint4*>(at + piece * 16) = v;
    }
  }
}

template <Codes kCodes, int kGroups, bool kGated>
__global__ void __launch_bounds__(kWarps * 32, kBlocks)
    direct_kernel(const __grid_constant__ DirectArgs a, const __grid_constant__ AtomArgs q) {
  extern __shared__ uint4 dynamic[];
  __shared__ float4 sums[2 * kWarps * 32];
  char* memory = reinterpret_cast<char*>(dynamic);
  char* rows = memory + kWarps * kRingBytes;
  if (a.next_at_once) let_next_start();
  const auto warp = static_cast<uint32_t>(threadIdx.x / 32);
  Worker<kCodes, kGroups, kGated> worker(a, q, shared_address(memory) + warp * kRingBytes,
                                         shared_address(rows), sums);
  worker.run(
      [&] {
        wait_for_previous();
        if (!a.next_at_once) let_next_start();
      },
      [&] {
        stage_rows(rows, a);
        __syncthreads();
      });
}

}  // namespace skiff::cuda::direct

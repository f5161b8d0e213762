// ops/cuda/quant/direct_kernel.cuh -- the kernel of direct_args.h. PTX ISA, "cp.async.bulk".
//
// One layer of a step with one row runs a dozen kernels of a few microseconds, whose code does not
// stay in the instruction caches until the next layer. So everything outside of the main loop is
// compact: loops that run a few times are not unrolled, and only lists of copies need divisions.
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

template <Codes kCodes, int kGroups, bool kGated>
class Worker {
 public:
  static constexpr int kWords = kCodes == Codes::kFour ? 1 : 2;  // 16-byte words of a lane
  // A stage has a chunk of two atoms, each with the scales of its rows at most.
  static constexpr int kStageBytes = 2 * (kWords * 512 + (kGroups > 0 ? kGroups * 32 : 0));
  static constexpr int kStages = kRingBytes / kStageBytes;
  static_assert(kStages <= kMostStages);

  // `ring` and the barriers of its stages at `full`: this warp's. `x`: the rows of x.
  __device__ Worker(const DirectArgs& a, const AtomArgs& q, uint32_t ring, uint32_t full,
                    uint32_t x, float4* sums)
      : a_(a),
        q_(q),
        ring_(ring),
        full_(full),
        x_(x),
        sums_(sums),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32),
        base_(atoms::base_pair(q.fixed_zero)) {
    const int each = (a.chunks + a.split() - 1) >> a.log_split;
    begin_ = min(a.chunks, (warp_ & (a.split() - 1)) * each);
    end_ = min(a.chunks, begin_ + each);
  }

  // All of this warp's work. wait() returns when the kernels before this one are complete, for
  // which weights that need no list do not wait, and stage_x() when x is in shared memory.
  template <class F, class G>
  __device__ void run(F wait, G stage_x) {
    init_barriers();
    const bool early = !is_listed() || a_.list_early;
    if (early) fill();
    wait();
    if (!early) fill();
    stage_x();
    int stage = 0;
    uint32_t parity = 0;
    int buffer = 0;
    for (Item item = item_from(0); exists(item); item = item_from(item.turn + 1)) {
      const Scales scales = scales_of(item);
      const uint32_t x = x_of(item);
      float sum[2][4] = {};
      for (int chunk = begin_; chunk < end_; ++chunk) {
        barrier_wait(full_ + 8 * stage, parity);
        const Chunk weights = load(ring_ + stage * kStageBytes);
        __syncwarp();
        if (elected()) copy_next(stage);
        multiply(sum, weights, x + chunk * (2 * kAtomWidth));
        if (++stage == kStages) stage = 0, parity ^= 1;
      }
      finish(sum, item, scales, buffer);
      buffer ^= 1;
    }
  }

 private:
  struct Item {
    int job, pair, expert, turn;
  };
  struct Scales {
    float first, second;
  };
  // A lane holds its part of both atoms of a chunk, and their scales where they lie there.
  struct Chunk {
    uint4 words[2][kWords];
    float scale[2];
  };

  // Returns the warp's item of a turn, or of the next turn whose item has an expert here. Behind
  // the last one it is an item that does not exist.
  __device__ Item item_from(int turn) const {
    for (;; ++turn) {
      const int slot = (warp_ >> a_.log_split) + turn * (kWarps >> a_.log_split);
      const int index = slot * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
      if (!is_listed()) return {index < a_.pairs ? 0 : 1, index, 0, turn};
      const int job = index / a_.pairs;
      const int expert = job < a_.jobs.capacity ? expert_or_none(a_.jobs, job) : 0;
      if (expert >= 0) return {job, index % a_.pairs, expert, turn};
    }
  }
  __device__ bool exists(const Item& item) const { return item.job < a_.jobs.capacity; }
  __device__ bool is_listed() const { return a_.jobs.expert != nullptr; }
  __device__ Scales scales_of(const Item& item) const {
    if (kGroups > 0) return {1, 1};
    const float* scales = q_.row_scales + item.expert * q_.padded_rows + lane_ / 4;
    return {scales[(kGated ? item.pair : 2 * item.pair) * kAtomHeight],
            scales[(kGated ? q_.up_atoms + item.pair : 2 * item.pair + 1) * kAtomHeight]};
  }

  __device__ void init_barriers() {
    if (lane_ == 0) {
#pragma unroll 1
      for (int stage = 0; stage < kStages; ++stage) barrier_init(full_ + 8 * stage, 1);
      barrier_init_done();
    }
    __syncwarp();
  }

  // Starts the copies of the first kStages chunks.
  __device__ void fill() {
    if (!elected()) return;
    next_item(item_from(0));
#pragma unroll 1
    for (int stage = 0; stage < kStages; ++stage) copy_next(stage);
  }
  // The elected thread alone knows what is copied next.
  __device__ void next_item(const Item& item) {
    copied_turn_ = item.turn;
    copied_chunk_ = begin_;
    if (!exists(item) || begin_ == end_) {
      from_ = nullptr;
      return;
    }
    from_ = q_.atoms + item.expert * q_.matrix_bytes + begin_ * q_.chunk_bytes +
            int64_t{kGated ? item.pair : 2 * item.pair} * atom_bytes();
  }
  // Starts the copy of the chunk behind the last one that was copied, if there is one.
  __device__ void copy_next(int stage) {
    if (from_ == nullptr) return;
    const uint32_t to = ring_ + stage * kStageBytes, full = full_ + 8 * stage;
    const int bytes = atom_bytes();
    barrier_expect(full, 2 * bytes);
    if constexpr (kGated) {
      copy_bytes(to, from_, bytes, full, Keep::kFirstToGo);
      copy_bytes(to + bytes, from_ + int64_t{q_.up_atoms} * bytes, bytes, full, Keep::kFirstToGo);
    } else {
      copy_bytes(to, from_, 2 * bytes, full, Keep::kFirstToGo);
    }
    from_ += q_.chunk_bytes;
    if (++copied_chunk_ == end_) next_item(item_from(copied_turn_ + 1));
  }
  __device__ int atom_bytes() const { return kGroups > 0 ? q_.atom_bytes : kWords * 512; }

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

  // Returns where a lane's 16 bytes of the item's rows of x begin: ldmatrix gives two steps of 16
  // columns at a time. Rows that x does not have are row 0 again, and what they give is not stored.
  __device__ uint32_t x_of(const Item& item) const {
    const int row = is_listed() ? (a_.one_row ? 0 : item.job) : lane_ % 8 < a_.rows ? lane_ % 8 : 0;
    return x_ + row * a_.pitch + lane_ / 8 * 16;
  }

  // Brings the sums of the warps that share the item together, scales and stores them.
  __device__ void finish(const float (&sum)[2][4], const Item& item, const Scales& scales,
                         int buffer) const {
    float4 all = {sum[0][0] + sum[1][0], sum[0][1] + sum[1][1], sum[0][2] + sum[1][2],
                  sum[0][3] + sum[1][3]};
    if (a_.split() > 1) {
      float4* mine = sums_ + buffer * (32 * kWarps) + warp_ * 32 + lane_;
      *mine = all;
      named_sync(1 + (warp_ >> a_.log_split), a_.split() * 32);
      if ((warp_ & (a_.split() - 1)) != 0) return;
      all = {};
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        if (w >= a_.split()) break;
        const float4 one = mine[w * 32];
        all.x += one.x, all.y += one.y, all.z += one.z, all.w += one.w;
      }
    }
    const int feature = item.pair * (kGated ? 8 : 16) + lane_ / 4;
#pragma unroll 1
    for (int odd = 0; odd < 2; ++odd)
      put_column((odd ? all.y : all.x) * scales.first, (odd ? all.w : all.z) * scales.second,
                 item.job, feature, 2 * (lane_ % 4) + odd);
  }

  // Stores one row's outputs: of the item's first atom and of its second, or what a gate lets
  // through.
  __device__ void put_column(float first, float second, int job, int feature, int column) const {
    if (column >= (is_listed() ? 1 : a_.rows)) return;
    const int64_t to = (is_listed() ? job : column) * a_.out_stride + feature;
    if constexpr (kGated) {
      if (feature < a_.features) put(a_.out, a_.out_f32, to, activate(first, a_.act) * second);
    } else {
#pragma unroll 1
      for (int i = 0; i < 16; i += 8) {
        if (feature + i >= a_.features) return;
        put(a_.out, a_.out_f32, to + i,
            (i == 0 ? first : second) + (a_.bias ? a_.bias[feature + i] : 0.0f));
      }
    }
  }

  const DirectArgs& a_;
  const AtomArgs& q_;
  const uint32_t ring_, full_, x_;
  float4* const sums_;
  const int lane_, warp_;
  const uint32_t base_;
  int begin_, end_;  // chunks of each item
  // What is copied next.
  const std::byte* from_ = nullptr;  // null: there is nothing left
  int copied_turn_ = 0, copied_chunk_ = 0;
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
  extern __shared__ uint4 dynamic[];
  __shared__ float4 sums[2 * kWarps * 32];
  __shared__ uint64_t full[kWarps * kMostStages];
  char* memory = reinterpret_cast<char*>(dynamic);
  char* rows = memory + kWarps * kRingBytes;
  const auto warp = static_cast<uint32_t>(threadIdx.x / 32);
  Worker<kCodes, kGroups, kGated> worker(a, q, shared_address(memory) + warp * kRingBytes,
                                         shared_address(full + warp * kMostStages),
                                         shared_address(rows), sums);
  worker.run(
      [&] {
        wait_for_previous();
        let_next_start();
      },
      [&] {
        stage_rows(rows, a);
        __syncthreads();
      });
}

}  // namespace skiff::cuda::direct

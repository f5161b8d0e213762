// ops/cuda/quant/direct_kernel.cuh -- what the kernels of direct_args.h have in common. PTX ISA,
// "cp.async.bulk".
//
// One layer of a step with one row runs a dozen kernels of a few microseconds, whose code does not
// stay in the instruction caches until the next layer. So everything outside of the main loop is
// compact: loops that run a few times are not unrolled, and only lists of copies need divisions.
#pragma once
#include "ops/cuda/activation.cuh"
#include "ops/cuda/hopper/copy.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/jobs.cuh"
#include "ops/cuda/quant/direct_args.h"
#include "ops/cuda/vector.cuh"

namespace skiff::cuda::direct {

// Steps through the pieces of all rows as if they lay one behind the other, `step` of them at a
// time: what one thread, or one warp, brings to shared memory. Rows after one another would each
// cost a latency of the L2.
struct PieceWalk {
  int row, piece;
  const int pieces, step_rows, step_pieces;

  __device__ PieceWalk(int first, int step, int of_row)
      : row(first / of_row),
        piece(first % of_row),
        pieces(of_row),
        step_rows(step / of_row),
        step_pieces(step % of_row) {}
  __device__ void next() {
    row += step_rows;
    piece += step_pieces;
    if (piece >= pieces) piece -= pieces, ++row;
  }
};

// What a warp works on at a time: all chunks of 16 weight rows, by one job's rows of x.
struct Item {
  int job, pair, expert, turn;
};

// The items of a warp, and what becomes of their sums.
template <int kWarps, bool kGated>
class ItemWork {
 public:
  // `x`: the rows of x in shared memory. `sums`: of two items of all warps of the block.
  __device__ ItemWork(const DirectArgs& a, uint32_t x, float4* sums)
      : a_(a), x_(x), sums_(sums), lane_(threadIdx.x % 32), warp_(threadIdx.x / 32) {
    const int each = (a.chunks + a.split() - 1) >> a.log_split;
    begin_ = min(a.chunks, (warp_ & (a.split() - 1)) * each);
    end_ = min(a.chunks, begin_ + each);
  }

 protected:
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
  // Returns where a lane's 16 bytes of the item's rows of x begin: ldmatrix gives two steps of 16
  // columns at a time. Rows that x does not have are row 0 again, and what they give is not stored.
  __device__ uint32_t x_of(const Item& item) const {
    return x_ + row_of(item, lane_ % 8) * a_.pitch + lane_ / 8 * 16;
  }
  // The row of x that is column `column` of an operand.
  __device__ int row_of(const Item& item, int column) const {
    if (is_listed()) return a_.one_row ? 0 : item.job;
    return column < a_.rows ? column : 0;
  }

  // Brings the sums of the warps that share the item together, scales and stores them.
  template <class Scales>
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
#pragma unroll 2
      for (int w = 0; w < a_.split(); ++w) {
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
  const uint32_t x_;
  float4* const sums_;
  const int lane_, warp_;
  int begin_, end_;  // chunks of each item
};

// Work with rings that one lane of each warp fills for all (cp.async.bulk). `Weights` says how 16
// weight rows lie in memory and how they are multiplied. It has
//   kDivision                 what the kernel is started with
//   kStageBytes, kXBytes      bytes of a chunk of weights, and of a row of x for it
//   Cursor begin(item, chunk)       from where copies go on
//   copy(cursor, to, full)          starts the copy of a chunk, counted at the barrier `full`
//   Scales scales_of(item, chunk, row_of)   those of an item from that chunk on, whose rows of x
//                                           are given by row_of(column)
//   Chunk load(stage)               brings a chunk to registers
//   multiply(sum, chunk, x, scales, more)   adds its products; `more` chunks of the item follow
template <class Weights, bool kGated>
class Worker : ItemWork<Weights::kDivision.warps, kGated> {
  using Base = ItemWork<Weights::kDivision.warps, kGated>;
  using Base::a_, Base::begin_, Base::end_, Base::lane_;
  using Base::exists, Base::is_listed, Base::item_from, Base::row_of;

 public:
  static constexpr int kStageBytes = Weights::kStageBytes;
  static constexpr int kStages = Weights::kDivision.ring_bytes / kStageBytes;
  static_assert(kStages <= kMostStages);
  using Scales = typename Weights::Scales;

  // `ring` and the barriers of its stages at `full`: this warp's. `x`: the rows of x.
  __device__ Worker(const DirectArgs& a, const Weights& weights, uint32_t ring, uint32_t full,
                    uint32_t x, float4* sums)
      : Base(a, x, sums), weights_(weights), ring_(ring), full_(full) {}

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
      Scales scales = weights_.scales_of(item, begin_, [&](int c) { return row_of(item, c); });
      const uint32_t x = this->x_of(item);
      float sum[2][4] = {};
      for (int chunk = begin_; chunk < end_; ++chunk) {
        barrier_wait(full_ + 8 * stage, parity);
        const auto weights = weights_.load(ring_ + stage * kStageBytes);
        __syncwarp();
        if (elected()) copy_next(stage);
        weights_.multiply(sum, weights, x + chunk * Weights::kXBytes, scales, chunk + 1 < end_);
        if (++stage == kStages) stage = 0, parity ^= 1;
      }
      this->finish(sum, item, scales, buffer);
      buffer ^= 1;
    }
  }

 private:
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
    copies_ = exists(item) && begin_ < end_;
    if (copies_) cursor_ = weights_.begin(item, begin_);
  }
  // Starts the copy of the chunk behind the last one that was copied, if there is one.
  __device__ void copy_next(int stage) {
    if (!copies_) return;
    weights_.copy(cursor_, ring_ + stage * kStageBytes, full_ + 8 * stage);
    if (++copied_chunk_ == end_) next_item(item_from(copied_turn_ + 1));
  }

  const Weights& weights_;
  const uint32_t ring_, full_;
  // What is copied next.
  typename Weights::Cursor cursor_ = {};
  bool copies_ = false;  // there is something left
  int copied_turn_ = 0, copied_chunk_ = 0;
};

// A block's work: weights from `weights`, and rows of x as stage(memory) leaves them, which returns
// once they are there.
template <bool kGated, class Weights, class Stage>
__device__ __forceinline__ void work(const DirectArgs& a, const Weights& weights, char* ring,
                                     char* rows, Stage stage) {
  constexpr Division kDivision = Weights::kDivision;
  __shared__ float4 sums[2 * kDivision.warps * 32];
  __shared__ uint64_t full[kDivision.warps * kMostStages];
  const auto warp = static_cast<uint32_t>(threadIdx.x / 32);
  Worker<Weights, kGated> worker(a, weights, shared_address(ring) + warp * kDivision.ring_bytes,
                                 shared_address(full + warp * kMostStages), shared_address(rows),
                                 sums);
  worker.run(
      [&] {
        wait_for_previous();
        let_next_start();
      },
      [&] {
        stage();
        __syncthreads();
      });
}

}  // namespace skiff::cuda::direct

// ops/cuda/moe/combine_cluster.cuh -- combine_norm() of a few long rows: a cluster has each of
// them.
//
// One multiprocessor takes microseconds to bring the rows of all copies of a token, and a block of
// 1,024 threads fills it, so that a block of the next kernel must wait to load its weights.
#pragma once
#include "ops/cuda/hopper/cluster.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/moe/combine.cuh"
#include "ops/cuda/rows/held_norm.cuh"

namespace skiff::cuda {

constexpr int kMostSpread = 256;  // threads of a block

// Thread n of the cluster has the columns that thread n of the one block has in held_norm(), and
// the sums of warps are added up as block_sum() adds them: the bits are those.
template <class T, int kPieces>
class SpreadRow {
 public:
  __device__ SpreadRow(const Combine& c, const HeldNorm& a) : c_(c), a_(a) {
    const int threads = static_cast<int>(blockDim.x), blocks = static_cast<int>(gridDim.x);
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      at_[i] = ((i * blocks + block_rank()) * threads + thread) * kNormVector;
      is_[i] = at_[i] < a.cols;
    }
  }

  // No kernel writes these.
  __device__ void load_weights() {
    for_columns([&](int i) { load<kNormVector>(weight_[i], a_.weight + at_[i]); });
  }
  __device__ void load_sums() {
    float more[kPieces][kNormVector];
    for_columns([&](int i) {
      load<kNormVector>(x_[i], residual() + at_[i]);
      if (c_.more) load_more<T>(more[i], c_, token_, at_[i]);
    });
    combine_pieces<T>(delta_, c_, token_, at_, is_);
    if (c_.more) for_columns([&](int i) { add_loaded<T>(delta_[i], more[i]); });
  }
  // Adds the rounded sums to the residual, and returns the thread's squares.
  __device__ float add() {
    float squares = 0;
    for_columns([&](int i) {
#pragma unroll
      for (int j = 0; j < kNormVector; ++j) {
        delta_[i][j] = to_float(from_float<T>(delta_[i][j]));
        x_[i][j] += delta_[i][j];
        squares += x_[i][j] * x_[i][j];
      }
    });
    return squares;
  }
  __device__ void store_all(float squares) {
    const float scale = rsqrtf(squares / static_cast<float>(a_.cols) + a_.eps);
    for_columns([&](int i) {
      store<kNormVector>(static_cast<T*>(c_.out) + token_ * c_.out_stride + at_[i], delta_[i]);
      store<kNormVector>(residual() + at_[i], x_[i]);
#pragma unroll
      for (int j = 0; j < kNormVector; ++j) x_[i][j] = x_[i][j] * scale * weight_[i][j];
      store<kNormVector>(row_of<T>(a_.out, token_) + at_[i], x_[i]);
    });
  }

 private:
  template <class F>
  __device__ void for_columns(F f) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      if (is_[i]) f(i);
  }
  __device__ float* residual() const { return row_of<float>(a_.residual, token_); }

  const Combine& c_;
  const HeldNorm& a_;
  const int64_t token_ = blockIdx.y;
  int at_[kPieces];
  bool is_[kPieces];
  float weight_[kPieces][kNormVector] = {}, x_[kPieces][kNormVector] = {};
  float delta_[kPieces][kNormVector];
};

// block_sum() over the threads of a cluster, whose blocks have arrived at its barrier once before.
__device__ __forceinline__ float cluster_sum(float x) {
  __shared__ float partial[32];
  const int lane = static_cast<int>(threadIdx.x) % 32, blocks = static_cast<int>(gridDim.x);
  const int warps_each = static_cast<int>(blockDim.x) / 32;
  x = warp_sum(x);
  cluster_wait();
  const int warp = block_rank() * warps_each + static_cast<int>(threadIdx.x) / 32;
  if (lane < blocks) of_peer(partial, lane)[warp] = x;
  cluster_sync();
  return warp_sum(lane < blocks * warps_each ? partial[lane] : 0);
}

// What is stored is stored behind the cluster's barrier, which would wait for it.
template <class T, int kPieces>
__global__ void __launch_bounds__(kMostSpread) combine_norm_cluster_kernel(Combine c, HeldNorm a) {
  let_next_start();
  cluster_arrive();
  SpreadRow<T, kPieces> row(c, a);
  row.load_weights();
  wait_for_previous();
  row.load_sums();
  row.store_all(cluster_sum(row.add()));
}

// The number of blocks of a cluster that divide so many threads evenly; 1: a block had better have
// them all.
constexpr unsigned blocks_of_row(unsigned threads) {
  for (const unsigned blocks : {8u, 4u})
    if (threads % (32 * blocks) == 0 && threads / blocks <= kMostSpread) return blocks;
  return 1;
}

}  // namespace skiff::cuda

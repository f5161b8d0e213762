// ops/cuda/sampling/row.cuh -- one row of logits spread over a cluster of blocks. Each block copies
// its piece into shared memory, so that device memory is read once however often the row is gone
// through. How a row is cut up depends on the vocabulary alone: results do not change with the
// number of rows.
#pragma once
#include <cooperative_groups.h>

#include "ops/cuda/sampling/block.cuh"

namespace skiff::cuda {

constexpr int kBlocks = 8;                  // of a cluster: one row
constexpr size_t kMostShared = 220 * 1024;  // that a block may ask for, with room for its own

__device__ __forceinline__ int block_rank() { return static_cast<int>(blockIdx.x) % kBlocks; }
// Before the first word to a peer, it must be known to run: everyone arrives at the start.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}
// The same object in the shared memory of another block of the cluster.
template <class T>
__device__ __forceinline__ T& of_peer(T& mine, int rank) {
  return *cooperative_groups::this_cluster().map_shared_rank(&mine, static_cast<unsigned>(rank));
}
// Tells all blocks this block's value; they have it after the next cluster_sync().
template <class T>
__device__ __forceinline__ void tell_all(T (&values)[kBlocks], T mine) {
  if (threadIdx.x < kBlocks) of_peer(values[block_rank()], static_cast<int>(threadIdx.x)) = mine;
}

// Tokens a block holds; a multiple of four, so that all pieces of a row are aligned alike.
__host__ __device__ constexpr int piece_size(int vocab) {
  return (vocab + 4 * kBlocks - 1) / (4 * kBlocks) * 4;
}
constexpr size_t piece_bytes(int vocab) {
  return (static_cast<size_t>(piece_size(vocab)) + 8) * sizeof(float);
}

// A block's piece of a row, in vectors of four that are aligned in device memory; kNever stands
// where the piece has no token. Not kHeld: too large for shared memory, read where it is.
template <bool kHeld>
class Piece {
 public:
  // All threads; memory holds piece_bytes(vocab), aligned to 16. Copying only starts.
  __device__ Piece(const float* row, int vocab, float* memory) : memory_(memory) {
    const int begin = min(vocab, block_rank() * piece_size(vocab));
    from_ = row + begin;
    count_ = min(vocab, begin + piece_size(vocab)) - begin;
    head_ = static_cast<int>(reinterpret_cast<uintptr_t>(from_) / sizeof(float) % 4);
    first_id_ = begin - head_;
    vectors_ = (head_ + count_ + 3) / 4;
    if (kHeld) hold();
  }

  // Must be called before the piece is gone through.
  __device__ void wait() const {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
  }

  // f(id of the first, the four logits) for the vectors of this thread, in any order.
  template <class F>
  __device__ __forceinline__ void each_vector(F f) const {
#pragma unroll 2
    for (int i = static_cast<int>(threadIdx.x); i < vectors_; i += kThreads)
      f(first_id_ + 4 * i, kHeld ? reinterpret_cast<const float4*>(memory_)[i] : read(i));
  }
  // f(id, logit); ids outside the vocabulary come with kNever.
  template <class F>
  __device__ __forceinline__ void each(F f) const {
    each_vector([&](int id, float4 v) {
      f(id, v.x);
      f(id + 1, v.y);
      f(id + 2, v.z);
      f(id + 3, v.w);
    });
  }
  // f(id, logit) for a run of tokens with rising ids; runs rise with the threads.
  template <class F>
  __device__ void each_of_run(F f) const {
    const int run = (count_ + kThreads - 1) / kThreads;
    const int begin = min(count_, run * static_cast<int>(threadIdx.x));
    for (int i = begin; i < min(count_, begin + run); ++i)
      f(first_id_ + head_ + i, kHeld ? memory_[head_ + i] : from_[i]);
  }

  __device__ bool has(int id) const {
    return static_cast<unsigned>(id - first_id_ - head_) < static_cast<unsigned>(count_);
  }

 private:
  __device__ bool whole(int i) const { return 4 * i >= head_ && 4 * i + 4 <= head_ + count_; }
  __device__ float element(int at) const {
    return at >= head_ && at < head_ + count_ ? from_[at - head_] : kNever;
  }
  __device__ float4 read(int i) const {
    if (whole(i)) return *reinterpret_cast<const float4*>(from_ + (4 * i - head_));
    return {element(4 * i), element(4 * i + 1), element(4 * i + 2), element(4 * i + 3)};
  }
  __device__ void hold() {
    for (int i = static_cast<int>(threadIdx.x); i < vectors_; i += kThreads) {
      if (whole(i)) {
        const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(memory_ + 4 * i));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to),
                     "l"(from_ + (4 * i - head_))
                     : "memory");
      } else {
        reinterpret_cast<float4*>(memory_)[i] = read(i);
      }
    }
  }

  const float* from_;
  float* memory_;
  int first_id_, head_, count_, vectors_;
};

// The best logit of the row, NaN passed over; bests become those of all blocks. The first thing
// that is said in a cluster, after everyone's cluster_arrive().
template <bool kHeld>
__device__ float best_of(const Piece<kHeld>& piece, float (&bests)[kBlocks]) {
  float best = kNever;
  piece.each_vector(
      [&](int, float4 v) { best = fmaxf(fmaxf(best, fmaxf(v.x, v.y)), fmaxf(v.z, v.w)); });
  best = reduce(best, [](float a, float b) { return fmaxf(a, b); });
  cluster_wait();
  tell_all(bests, best);
  cluster_sync();
  for (int p = 0; p < kBlocks; ++p) best = fmaxf(best, bests[p]);
  return best;
}

}  // namespace skiff::cuda

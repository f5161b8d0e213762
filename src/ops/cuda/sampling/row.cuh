// ops/cuda/sampling/row.cuh -- one row of logits, divided among the blocks of a cluster. Each block
// copies its piece into shared memory, so that device memory is read once although the row is
// passed over several times. The division depends on the vocabulary alone, so results do not change
// with the number of rows.
#pragma once
#include "ops/cuda/hopper/cluster.cuh"
#include "ops/cuda/sampling/block.cuh"

namespace skiff::cuda {

constexpr int kBlocks = 8;                   // blocks of a cluster, which holds a row
constexpr int kVector = 4;                   // logits of one load
constexpr size_t kAlwaysShared = 40 * 1024;  // dynamic shared memory that every device can give

// The number of blocks of this cluster: kBlocks, or one on devices without clusters.
__device__ __forceinline__ int blocks() {
#if __CUDA_ARCH__ >= 900
  int n;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(n));
  return n;
#else
  return 1;
#endif
}
// The same, known at compile time for rows that are held: these always have kBlocks.
template <bool kHeld>
__device__ __forceinline__ int blocks_of() {
  return kHeld ? kBlocks : blocks();
}
// The rank of this cluster in the grid.
__device__ __forceinline__ int cluster_index() { return static_cast<int>(blockIdx.x) / blocks(); }
// Writes this block's value to all blocks of the cluster, which may read it after the next
// cluster_sync().
template <class T>
__device__ __forceinline__ void broadcast(T (&values)[kBlocks], T mine) {
  if (static_cast<int>(threadIdx.x) < blocks())
    of_peer(values[block_rank()], static_cast<int>(threadIdx.x)) = mine;
}

// The tokens of a block; a multiple of four, so that all pieces of a row have one alignment.
__host__ __device__ constexpr int piece_size(int vocab, int pieces = kBlocks) {
  return (vocab + 4 * pieces - 1) / (4 * pieces) * 4;
}
constexpr size_t piece_bytes(int vocab) {
  return (static_cast<size_t>(piece_size(vocab)) + 8) * sizeof(float);
}

// A block's piece of a row, in vectors of four, with kNever where the piece has no token. If kHeld,
// it is copied to shared memory, and token i of the piece is in vector i / 4 whatever the row's
// alignment: which thread sees it depends on the vocabulary alone. Otherwise it is too large for
// shared memory and is read from device memory in aligned vectors.
template <bool kHeld, int kN = kThreads>
class Piece {
 public:
  // Called by all threads; memory has piece_bytes(vocab), aligned to 16. Starts the copy only.
  __device__ Piece(const float* row, int vocab, float* memory) : memory_(memory) {
    const int size = piece_size(vocab, blocks_of<kHeld>());
    const int begin = min(vocab, block_rank() * size);
    from_ = row + begin;
    count_ = min(vocab, begin + size) - begin;
    const auto head = static_cast<int>(reinterpret_cast<uintptr_t>(from_) / sizeof(float) % 4);
    aligned_ = head == 0;
    head_ = kHeld ? 0 : head;
    first_id_ = begin - head_;
    vectors_ = (head_ + count_ + 3) / 4;
    if (kHeld) hold();
  }

  // Waits for this thread's own copies, which are what each_vector and each_held give it.
  __device__ void wait_own() const { asm volatile("cp.async.wait_all;" ::: "memory"); }
  // Waits for the copies of all threads, which any other access needs.
  __device__ void wait() const {
    wait_own();
    __syncthreads();
  }

  // Calls f(id of the first, the four logits) for the vectors of this thread, in any order.
  template <class F>
  __device__ __forceinline__ void each_vector(F f) const {
#pragma unroll 2
    for (int i = static_cast<int>(threadIdx.x); i < vectors_; i += kN)
      f(first_id_ + 4 * i, kHeld ? reinterpret_cast<const float4*>(memory_)[i] : read(i));
  }
  // Calls f(id, logit); ids outside the vocabulary come with kNever.
  template <class F>
  __device__ __forceinline__ void each(F f) const {
    each_vector([&](int id, float4 v) {
      f(id, v.x);
      f(id + 1, v.y);
      f(id + 2, v.z);
      f(id + 3, v.w);
    });
  }
  // Calls f(id, logit) for a run of tokens with rising ids; runs rise with the threads.
  template <class F>
  __device__ void each_of_run(F f) const {
    const int run = (count_ + kN - 1) / kN;
    const int begin = min(count_, run * static_cast<int>(threadIdx.x));
    for (int i = begin; i < min(count_, begin + run); ++i)
      f(first_id_ + head_ + i, kHeld ? memory_[head_ + i] : from_[i]);
  }

  __device__ int vectors() const { return vectors_; }
  // The functions from here on are for held pieces only. This one calls f(index of the first token
  // in the piece, the four logits) for the vectors of this thread.
  template <class F>
  __device__ __forceinline__ void each_held(F f) const {
    int i = static_cast<int>(threadIdx.x);
    if (i >= vectors_) return;
    float4 coming = vector(i);  // loaded while f works on the vector before
#pragma unroll 4
    for (;;) {
      const float4 v = coming;
      const int at = 4 * i;
      i += kN;
      const bool more = i < vectors_;
      if (more) coming = vector(i);
      f(at, v);
      if (!more) return;
    }
  }
  __device__ __forceinline__ float4 vector(int i) const {
    return reinterpret_cast<const float4*>(memory_)[i];
  }
  __device__ __forceinline__ float logit(int i) const { return memory_[i]; }
  __device__ __forceinline__ int id(int i) const { return first_id_ + i; }

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
  template <int kBytes>
  __device__ __forceinline__ void copy(int at) {
    const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(memory_ + at));
    if constexpr (kBytes == 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from_ + at)
                   : "memory");
    } else {
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from_ + at)
                   : "memory");
    }
  }
  __device__ void hold() {
    for (int i = static_cast<int>(threadIdx.x); i < vectors_; i += kN) {
      if (aligned_ && 4 * i + 4 <= count_) {
        copy<16>(4 * i);
        continue;
      }
      for (int at = 4 * i; at < 4 * i + 4; ++at) {
        if (at < count_) {
          copy<4>(at);
        } else {
          memory_[at] = kNever;
        }
      }
    }
  }

  const float* from_;
  float* memory_;
  int first_id_, head_, count_, vectors_;
  bool aligned_;
};

// The greatest of this thread's logits, without NaN.
template <bool kHeld, int kN>
__device__ float best_of_thread(const Piece<kHeld, kN>& piece) {
  float best = kNever;
  piece.each_vector(
      [&](int, float4 v) { best = fmaxf(fmaxf(best, fmaxf(v.x, v.y)), fmaxf(v.z, v.w)); });
  return best;
}

// The greatest logit of the row; `bests` gets those of all blocks. It contains the cluster_wait()
// that belongs to the cluster_arrive() at the start of a kernel.
template <bool kHeld, int kN>
__device__ float best_of(const Piece<kHeld, kN>& piece, float (&bests)[kBlocks]) {
  float best = best_of_thread(piece);
  best = reduce<kN>(best, [](float a, float b) { return fmaxf(a, b); });
  cluster_wait();
  broadcast(bests, best);
  cluster_sync();
  for (int p = 0; p < blocks_of<kHeld>(); ++p) best = fmaxf(best, bests[p]);
  return best;
}

}  // namespace skiff::cuda

// comm/devices/exchange.cuh -- sending to, and receiving from, the mailboxes of exchange.h.
#pragma once
#include <algorithm>
#include <type_traits>

#include "comm/devices/exchange.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/vector.cuh"

namespace skiff::devices {

// A kernel that waits longer than this for another rank ends its process: the other one's host no
// longer launches what it must.
constexpr uint64_t kPatienceNs = uint64_t{60} * 1000 * 1000 * 1000;

// N neighbouring elements as words: 16 bytes, or one element.
template <class T, int N>
using Words = std::conditional_t<sizeof(T) * N == 16, uint4,
                                 std::conditional_t<sizeof(T) * N == 4, uint32_t, uint16_t>>;

// What a sender writes in place of a word that would seem not to be there.
template <class T>
__device__ __forceinline__ uint32_t sendable(uint32_t word) {
  if constexpr (sizeof(T) == 2) return word & ~__vcmpeq2(word, kEmpty);
  return word == kEmpty ? 0x80000000u : word;
}
template <class T>
__device__ __forceinline__ uint16_t sendable(uint16_t word) {
  return word == kEmpty >> 16 ? 0 : word;
}
template <class T>
__device__ __forceinline__ uint4 sendable(uint4 w) {
  return {sendable<T>(w.x), sendable<T>(w.y), sendable<T>(w.z), sendable<T>(w.w)};
}

// Returns whether all elements are there.
template <class T>
__device__ __forceinline__ bool is_there(uint32_t word) {
  if constexpr (sizeof(T) == 2) return __vcmpeq2(word, kEmpty) == 0;
  return word != kEmpty;
}
template <class T>
__device__ __forceinline__ bool is_there(uint16_t word) {
  return word != kEmpty >> 16;
}
template <class T>
__device__ __forceinline__ bool is_there(const uint4& w) {
  return is_there<T>(w.x) && is_there<T>(w.y) && is_there<T>(w.z) && is_there<T>(w.w);
}

__device__ __forceinline__ void send(void* to, const uint4& w) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(w.x), "r"(w.y),
               "r"(w.z), "r"(w.w)
               : "memory");
}
__device__ __forceinline__ void send(void* to, uint32_t w) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(w) : "memory");
}
__device__ __forceinline__ void send(void* to, uint16_t w) {
  asm volatile("st.relaxed.sys.global.u16 [%0], %1;" ::"l"(to), "h"(w) : "memory");
}

__device__ __forceinline__ void receive(const void* from, uint4& w) {
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
               : "l"(from)
               : "memory");
}
__device__ __forceinline__ void receive(const void* from, uint32_t& w) {
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(w) : "l"(from) : "memory");
}
__device__ __forceinline__ void receive(const void* from, uint16_t& w) {
  asm volatile("ld.relaxed.sys.global.u16 %0, [%1];" : "=h"(w) : "l"(from) : "memory");
}

__device__ __forceinline__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Returns true where the group has ended. `since` is 0 before the first call.
__device__ __noinline__ inline bool gives_up(const Exchange& exchange, uint64_t& since) {
  const uint64_t now = nanoseconds();
  if (since == 0) since = now;
  if (*const_cast<volatile const int32_t*>(&exchange.signal->stop) != 0) return true;
  if (now - since > kPatienceNs) __trap();
  return false;
}

// The ranks other than one's own, in an order of this warp's. Warps begin with different ones, so
// that the links to all are busy at the same time, and no rank is sent to by all at once.
class Others {
 public:
  __device__ explicit Others(const Exchange& exchange)
      : rank_(exchange.rank), size_(exchange.size) {
    if (size_ > 2) shift_ = static_cast<int>(blockIdx.x + threadIdx.x / 32) % (size_ - 1);
  }
  __device__ __forceinline__ int count() const { return size_ - 1; }
  __device__ __forceinline__ int operator()(int i) const {
    const int place = i + shift_;
    const int rank = rank_ + 1 + (place < count() ? place : place - count());
    return rank < size_ ? rank : rank - size_;
  }

 private:
  const int rank_, size_;
  int shift_ = 0;
};

// One call of a collective, as one of its threads sees it.
class Turn {
 public:
  // Waits for the kernels before this one and lets the next one start, which may load its weights
  // while this one waits for other ranks. `bytes` are sent to every rank. load() loads what is sent
  // first, on its way at the same time as the state.
  template <class Load>
  __device__ Turn(const Exchange& exchange, uint64_t bytes, Load load)
      : exchange_(exchange), bytes_(bytes), others_(exchange) {
    cuda::wait_for_previous();
    if (!exchange.shares_device) cuda::let_next_start();
    load();
    __syncwarp();
    receive(exchange.state, state_);
  }
  __device__ Turn(const Exchange& exchange, uint64_t bytes) : Turn(exchange, bytes, [] {}) {}

  // Sends words to byte `at` of this rank's slot in the mailbox of rank `to`, and of all others.
  template <class W>
  __device__ __forceinline__ void send_to(int to, uint64_t at, const W& words) const {
    send(slot(to, generation(), exchange_.rank) + at, words);
  }
  template <class W>
  __device__ __forceinline__ void send_all(uint64_t at, const W& words) const {
    for (int i = 0; i < others_.count(); ++i) send_to(others_(i), at, words);
  }

  // Called once by all threads, when they have sent: empties this thread's share of what the
  // collective before has read, and the last block to come here makes the next generation current,
  // which no block of this kernel reads any more. Then come the waits.
  __device__ void turn_over() const {
    __syncthreads();
    if (threadIdx.x == 0) {
      ExchangeState& state = *exchange_.state;
      if (gridDim.x == 1 || atomicAdd(&state.blocks, 1u) + 1 == gridDim.x) {
        state.used[generation()] = static_cast<uint32_t>(bytes_);
        state.generation = (generation() + 1) % kGenerations;
        state.blocks = 0;
      }
    }
    const uint32_t last = (generation() + kGenerations - 1) % kGenerations;
    const uint32_t used = last == 0 ? state_.y : last == 1 ? state_.z : state_.w;
    const uint64_t thread = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    const uint64_t step = uint64_t{gridDim.x} * blockDim.x * 16;
    const uint4 empty = {kEmpty, kEmpty, kEmpty, kEmpty};
    for (int from = 0; from < exchange_.size; ++from) {
      if (from == exchange_.rank) continue;
      std::byte* at = slot(exchange_.rank, last, from);
      for (uint64_t b = thread * 16; b < used; b += step) *reinterpret_cast<uint4*>(at + b) = empty;
    }
  }

  // words = what rank `from`, another one, has sent to byte `at`: at once, and perhaps not there
  // yet; or once it is there. await_from() returns false where the group has ended.
  template <class W>
  __device__ __forceinline__ void peek(int from, uint64_t at, W& words) const {
    receive(slot(exchange_.rank, generation(), from) + at, words);
  }
  template <class T, class W>
  __device__ __forceinline__ bool await_from(int from, uint64_t at, W& words) const {
    return await<T>(slot(exchange_.rank, generation(), from) + at, words);
  }

  // words[r] = what rank r sent to byte `at`, once it is there, for r below `ranks`; own words stay
  // as they are.
  template <class T, class W, int kMost>
  __device__ __forceinline__ void receive_all(uint64_t at, int ranks, W (&words)[kMost]) const {
    const auto is_other = [&](int rank) { return rank < ranks && rank != exchange_.rank; };
#pragma unroll
    for (int from = 0; from < kMost; ++from)
      if (is_other(from)) receive(slot(exchange_.rank, generation(), from) + at, words[from]);
#pragma unroll
    for (int from = 0; from < kMost; ++from)
      if (is_other(from)) await<T>(slot(exchange_.rank, generation(), from) + at, words[from]);
  }

 private:
  __device__ __forceinline__ uint32_t generation() const { return state_.x; }
  __device__ __forceinline__ std::byte* slot(int of, uint32_t generation, int from) const {
    return exchange_.box[of] +
           (uint64_t{generation} * exchange_.size + static_cast<uint64_t>(from)) * kSlotBytes;
  }
  template <class T, class W>
  __device__ __forceinline__ bool await(const std::byte* at, W& words) const {
    uint64_t since = 0;
    for (uint32_t polls = 1; !is_there<T>(words); ++polls) {
      if (polls % 4096 == 0 && gives_up(exchange_, since)) return false;
      receive(at, words);
    }
    return true;
  }

  const Exchange& exchange_;
  const uint64_t bytes_;
  const Others others_;
  uint4 state_;  // the first bytes of the ExchangeState
};

// How many clusters of a kernel a device has room for; of one block each, if how.cluster is 1.
template <class... P>
int fitting_clusters(const cuda::Launch& how, void (*kernel)(P...)) {
  int fit = 0;
  if (how.cluster > 1) {
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {how.cluster, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(how.cluster);
    config.blockDim = how.block;
    config.dynamicSmemBytes = how.shared;
    config.attrs = &cluster;
    config.numAttrs = 1;
    cuda::check(cudaOccupancyMaxActiveClusters(&fit, kernel, &config),
                "counting the clusters that fit a device");
    return fit;
  }
  cuda::check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                  &fit, kernel, static_cast<int>(how.block.x), how.shared),
              "counting the blocks that fit a multiprocessor");
  return fit * cuda::attribute(cudaDevAttrMultiProcessorCount);
}

// How many clusters, of how.cluster blocks each, can be resident at the same time, of at most 1024
// threads on a multiprocessor: a block waits for the block of the same number on every other
// device. Registers and shared memory of the kernel decide what fits. Ranks that share a device
// leave room for each other.
template <class... P>
int64_t most_resident(const cuda::Launch& how, void (*kernel)(P...), const Exchange& exchange) {
  constexpr unsigned kMostThreads = 1024;
  constexpr int64_t kMostBesideOthers = 8;
  if (exchange.shares_device) return kMostBesideOthers;
  // A multiprocessor has so many blocks at most.
  const unsigned share = std::max(1u, kMostThreads / how.block.x);
  return std::min<int64_t>(
      int64_t{share} * cuda::attribute(cudaDevAttrMultiProcessorCount) / how.cluster,
      fitting_clusters(how, kernel));
}

// Gives `how` as many blocks as are wanted and can be resident.
template <class... P>
void set_resident_blocks(cuda::Launch& how, void (*kernel)(P...), int64_t wanted,
                         const Exchange& exchange) {
  how.grid = dim3(static_cast<unsigned>(std::min(wanted, most_resident(how, kernel, exchange))));
}

}  // namespace skiff::devices

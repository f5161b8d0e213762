// ops/cuda/one_row/ring.cuh -- a ring buffer of weights in shared memory: one producer warp issues
// bulk copies (TMA), the consumer warps release each item's place. Items have different sizes; both
// sides know them and so agree on where each one lies. PTX ISA, "mbarrier" and "cp.async.bulk".
#pragma once
#include "ops/cuda/hopper/copy.cuh"
#include "ops/cuda/one_row/ring_books.h"

namespace skiff::cuda {

struct RingBarriers {
  uint64_t full[kRingItems], empty[kRingItems];
};

// The producer's side; the lanes of its warp run together. The bytes in flight are limited to what
// keeps the memory busy: more would delay the multiprocessor's other requests.
class RingFiller {
 public:
  __device__ RingFiller(char* memory, int bytes, int max_bytes_in_flight, RingBarriers* barriers,
                        int* item_bytes)
      : memory_(shared_address(memory)),
        full_(shared_address(barriers->full)),
        empty_(shared_address(barriers->empty)),
        place_(bytes),
        books_(bytes, max_bytes_in_flight),
        item_bytes_(item_bytes) {}

  // Waits for room. Returns where the next item begins; copies go there with copy(), once all
  // lanes have come back from here, until next().
  __device__ uint32_t open(int bytes, int copied) {
    const uint32_t at = memory_ + place_.take(bytes);
    const int need = bytes + place_.skipped();
    while (books_.needs_release(need)) {
      const RingCount& oldest = books_.oldest();
      barrier_wait(empty_ + 8 * oldest.slot, oldest.parity);
      books_.released(item_bytes_[oldest.slot]);
    }
    while (books_.needs_arrival(need)) {
      const RingCount& first = books_.in_flight();
      barrier_wait(full_ + 8 * first.slot, first.parity);
      books_.arrived(item_bytes_[first.slot]);
    }
    books_.issued(need);
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      item_bytes_[books_.newest().slot] = need;
      barrier_expect(full_ + 8 * books_.newest().slot, copied);
    }
    __syncwarp();
    return at;
  }
  __device__ void copy(uint32_t to, const void* from, int bytes) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1], %2, [%3], %4;" ::"r"(to),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(full_ + 8 * books_.newest().slot),
        "l"(static_cast<uint64_t>(Keep::kFirstToGo))
        : "memory");
  }
  __device__ void next() { books_.next(); }

 private:
  uint32_t memory_, full_, empty_;
  RingPlace place_;
  RingBooks books_;
  int* item_bytes_;  // [kRingItems], the unused end of the ring before it included
};

// The side of a consumer warp. Every consumer warp releases every item, whether it read it or not.
class RingReader {
 public:
  __device__ RingReader(const char* memory, int bytes, RingBarriers* barriers)
      : memory_(memory),
        full_(shared_address(barriers->full)),
        empty_(shared_address(barriers->empty)),
        place_(bytes) {}
  __device__ const char* open(int bytes) {
    const char* at = memory_ + place_.take(bytes);
    barrier_wait(full_ + 8 * count_.slot, count_.parity);
    return at;
  }
  __device__ void close() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty_ + 8 * count_.slot);
    count_.advance();
  }

 private:
  const char* memory_;
  uint32_t full_, empty_;
  RingPlace place_;
  RingCount count_;
};

}  // namespace skiff::cuda

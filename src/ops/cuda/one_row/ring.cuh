// ops/cuda/one_row/ring.cuh -- a queue of weights in shared memory: one warp has them copied in,
// the warps that read them give their place back. Items have different sizes; both sides know them
// and so agree on where each one lies. PTX ISA, "mbarrier" and "cp.async.bulk".
#pragma once
#include "ops/cuda/hopper/copy.cuh"

namespace skiff::cuda {

constexpr int kRingItems = 32;  // at most, at a time

struct RingBarriers {
  uint64_t full[kRingItems], empty[kRingItems];
};

// Where items lie, as one side goes along.
class RingPlace {
 public:
  __device__ explicit RingPlace(int bytes) : bytes_(bytes) {}
  // The next item's; what is left at the end of the ring stays unused when the item does not fit.
  __device__ int take(int item_bytes) {
    const bool fits = at_ + item_bytes <= bytes_;
    skipped_ = fits ? 0 : bytes_ - at_;
    const int begin = fits ? at_ : 0;
    at_ = begin + item_bytes;
    return begin;
  }
  __device__ int skipped() const { return skipped_; }
  __device__ int bytes() const { return bytes_; }

 private:
  int bytes_, at_ = 0, skipped_ = 0;
};

struct RingCount {  // of items, as an index and the parity of its round
  int slot = 0;
  uint32_t parity = 0;
  __device__ void advance() {
    if (++slot < kRingItems) return;
    slot = 0;
    parity ^= 1;
  }
};

// The side of the one warp that fills the ring; its lanes go along together. No more is on its way
// at a time than keeps the memory busy: what else the multiprocessor asks for would wait behind it.
class RingFiller {
 public:
  __device__ RingFiller(char* memory, int bytes, int most_on_way, RingBarriers* barriers,
                        int* item_bytes)
      : memory_(shared_address(memory)),
        full_(shared_address(barriers->full)),
        empty_(shared_address(barriers->empty)),
        place_(bytes),
        free_(bytes),
        most_on_way_(most_on_way),
        item_bytes_(item_bytes) {}

  // Waits for room. Returns where the next item begins; copies go there with copy(), once all
  // lanes have come back from here, until next().
  __device__ uint32_t open(int bytes, int copied) {
    const uint32_t at = memory_ + place_.take(bytes);
    const int need = bytes + place_.skipped();
    while (free_ < need || items_ == kRingItems) {
      barrier_wait(empty_ + 8 * oldest_.slot, oldest_.parity);
      free_ += item_bytes_[oldest_.slot];
      oldest_.advance();
      --items_;
    }
    while (on_way_ > 0 && on_way_ + need > most_on_way_) {
      barrier_wait(full_ + 8 * coming_.slot, coming_.parity);
      on_way_ -= item_bytes_[coming_.slot];
      coming_.advance();
    }
    free_ -= need;
    on_way_ += need;
    ++items_;
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      item_bytes_[newest_.slot] = need;
      barrier_expect(full_ + 8 * newest_.slot, copied);
    }
    __syncwarp();
    return at;
  }
  __device__ void copy(uint32_t to, const void* from, int bytes) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1], %2, [%3], %4;" ::"r"(to),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(full_ + 8 * newest_.slot),
        "l"(static_cast<uint64_t>(Keep::kFirstToGo))
        : "memory");
  }
  __device__ void next() { newest_.advance(); }

 private:
  uint32_t memory_, full_, empty_;
  RingPlace place_;
  int free_, items_ = 0, on_way_ = 0, most_on_way_;
  RingCount oldest_, coming_, newest_;
  int* item_bytes_;  // [kRingItems], the unused end of the ring before it included
};

// The side of a warp that reads. Every warp reads every item, or says that it has.
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

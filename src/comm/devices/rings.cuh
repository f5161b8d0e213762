// comm/devices/rings.cuh -- rings through which many rows cross a link.
//
// What a rank sends to another one is a stream of chunks, each at most kChunkBytes of a row, which
// a warp sends and a warp takes. Chunk i goes to slot i % slots of a ring at its receiver. Two
// flags belong to a slot: `sent` beside the ring, and `taken` at the sender. They hold the number
// of the chunk's round, and rounds are counted on from call to call, so nobody takes a flag for
// another one. A warp that sends waits for `taken` of the chunk before in the slot, or of its own
// where none comes behind it. So after a collective all slots are free, and a rank may send before
// the others have begun.
//
// Every warp takes its chunks in their order, so the first chunk that has not arrived waits only
// for earlier ones: nobody waits for ever, however many warps each rank has.
//
// The rings of a rank lie in the slots of its own mailbox that exchange.h would have for what it
// sends to itself.
#pragma once
#include "comm/devices/exchange.cuh"

namespace skiff::devices {

constexpr int kChunkBytes = 8192;
// All rings of a rank together have so many slots, and a call has at most so many blocks.
constexpr int kRingSlots = static_cast<int>(kSlotBytes) / kChunkBytes;
constexpr unsigned kMostRingBlocks = 2048;

// Rows of some columns as chunks. Rows have a whole number of them, of nearly the same width.
template <class T>
struct Chunks {
  int cols, per_row, width;

  __device__ explicit Chunks(int columns) : cols(columns) {
    constexpr int kMost = kChunkBytes / sizeof(T), kAlign = 16 / sizeof(T);
    per_row = (cols + kMost - 1) / kMost;
    width = (cols + per_row * kAlign - 1) / (per_row * kAlign) * kAlign;
  }
  __device__ int of(int rows) const { return rows * per_row; }
  __device__ int row(int chunk) const { return chunk / per_row; }
  __device__ int column(int chunk) const { return chunk % per_row * width; }
  // Calls load(column) for this lane's accesses of N elements, and then use(column, what it gave):
  // kAtOnce of them are under way together. Columns count from the chunk's first one.
  template <int N, int kAtOnce, class Load, class Use>
  __device__ __forceinline__ void move(int chunk, Load load, Use use) const {
    constexpr int kStep = 32 * N;
    const int count = min(width, cols - column(chunk));
    for (int c = static_cast<int>(threadIdx.x) % 32 * N; c < count; c += kAtOnce * kStep) {
      decltype(load(0)) words[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (c + i * kStep < count) words[i] = load(c + i * kStep);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (c + i * kStep < count) use(c + i * kStep, words[i]);
    }
  }
};

// The rings as one warp sees them. Its lane r stands for rank r; functions that take a `peer` are
// called by all lanes, with whether the chunk crosses to, or from, that lane's rank.
class Rings {
 public:
  // All threads of a block construct it before a barrier of the block, and call begin() behind
  // that. No rank sends more than `chunks` to another one in this call; all ranks say the same.
  __device__ Rings(const Exchange& exchange, int chunks)
      : exchange_(exchange), slots_(kRingSlots / max(1, exchange.size - 1)), chunks_(chunks) {
    receive(rounds_of(blockIdx.x), rounds_);
  }
  // Counts rounds for the calls to come: each block for itself, and for blocks that this call does
  // not have.
  __device__ void begin() const {
    const uint32_t next = round(chunks_ - 1);
    for (unsigned b = blockIdx.x + threadIdx.x * gridDim.x; b < kMostRingBlocks;
         b += blockDim.x * gridDim.x)
      *rounds_of(b) = next;
  }

  // Where chunk i of rank `from` lies at rank `of`.
  __device__ __forceinline__ std::byte* slot(int of, int from, int i) const {
    const int seat = from < of ? from : from - 1;
    return own(of, /*generation=*/0) + int64_t{seat * slots_ + i % slots_} * kChunkBytes;
  }

  // Waits until chunk i can be sent. This and the other waits return false where the group has
  // ended.
  __device__ bool await_free(int i, bool peer) const {
    return i < slots_ || await(taken_of(lane(), i), i - slots_, peer);
  }
  __device__ void tell_sent(int i, bool peer) const {
    __syncwarp();
    if (peer)
      asm volatile(
          "st.release.sys.global.u32 [%0], %1;" ::"l"(flag(lane(), kSent, exchange_.rank, i)),
          "r"(round(i))
          : "memory");
  }
  __device__ bool await_sent(int i, bool peer) const {
    return await(flag(exchange_.rank, kSent, lane(), i), i, peer);
  }
  // What the warp has received it has also used, so nothing is read any more when this is written.
  __device__ void tell_taken(int i, bool peer) const {
    __syncwarp();
    if (peer) send(flag(lane(), kTaken, exchange_.rank, i), round(i));
  }
  // Waits until chunk i of `chunks` has been taken, if nobody sends another one to its slot.
  __device__ bool await_taken(int i, int chunks, bool peer) const {
    return await(taken_of(lane(), i), i, peer && i + slots_ >= chunks);
  }

 private:
  enum Kind { kSent, kTaken };

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ __forceinline__ std::byte* own(int of, int generation) const {
    return exchange_.box[of] + (int64_t{generation} * exchange_.size + of) * kSlotBytes;
  }
  __device__ __forceinline__ uint32_t* flag(int of, Kind kind, int from, int i) const {
    return reinterpret_cast<uint32_t*>(own(of, /*generation=*/1)) +
           (kind * kMaxDevices + from) * kRingSlots + i % slots_;
  }
  __device__ __forceinline__ uint32_t* taken_of(int by, int i) const {
    return flag(exchange_.rank, kTaken, by, i);
  }
  __device__ __forceinline__ uint32_t* rounds_of(unsigned block) const {
    return reinterpret_cast<uint32_t*>(own(exchange_.rank, /*generation=*/1)) +
           2 * kMaxDevices * kRingSlots + block;
  }
  __device__ __forceinline__ uint32_t round(int i) const {
    return rounds_ + static_cast<uint32_t>(i / slots_) + 1;
  }

  __device__ __forceinline__ bool await(uint32_t* flag, int i, bool peer) const {
    const bool there = !peer || see(flag, round(i));
    const bool all = __all_sync(0xffffffffu, there);
    __syncwarp();
    return all;
  }
  __device__ bool see(const uint32_t* flag, uint32_t round) const {
    uint64_t since = 0;
    for (uint32_t polls = 1;; ++polls) {
      uint32_t word;
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(flag) : "memory");
      if (word == round) return true;
      if (polls % 4096 == 0 && gives_up(exchange_, since)) return false;
    }
  }

  const Exchange& exchange_;
  const int slots_, chunks_;
  uint32_t rounds_;
};

}  // namespace skiff::devices

// ops/cuda/linear/stream_walk.cuh -- which tiles, and which chunks of them, a block works on.
#pragma once
#include "ops/cuda/hopper/barrier.cuh"
#include "ops/cuda/linear/jobs.cuh"
#include "ops/cuda/linear/line_walk.h"
#include "ops/cuda/linear/stream_args.cuh"

namespace skiff::cuda::streamed {

// Chunks [begin, end) of one tile.
struct TileSlice {
  Job job;
  int tile, begin, end;
  int first_block, last_block;  // all blocks that work on the tile, if it is cut
  int line;                     // the line of SliceWalk on which the tile lies

  __device__ bool is_cut(const StreamArgs& a) const { return begin > 0 || end < a.chunks; }
};

// Where stream-K, with `cut` chunks for each block, ends the piece of a tile that begins at chunk
// `begin`.
__device__ __forceinline__ int end_of_piece(int tile, int begin, int chunks, int cut) {
  const int first = tile * chunks;
  return min(chunks, ((first + begin) / cut + 1) * cut - first);
}

// A stage of a ring, and the parity of its barriers' phase in this round.
template <int kStages>
struct RingTurn {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

// Whole tiles of a list of jobs are claimed one by one, since jobs differ in length: the thread
// that loads weights claims a tile for its block, and tells the other threads through this queue in
// shared memory.
struct ClaimQueue {
  static constexpr int kSlots = 4;

  uint64_t full[kSlots], empty[kSlots];
  int tile[kSlots];  // counted over all jobs; the number of tiles or more: there are no more
  Job job[kSlots];

  // `readers`: how many threads arrive at `empty` when a slot has been read.
  __device__ void init(int readers) {
    for (int i = 0; i < kSlots; ++i) {
      barrier_init(shared_address(full + i), 1);
      barrier_init(shared_address(empty + i), readers);
    }
  }
};

// The rows of job i, where there is no queue.
template <int N>
__device__ Job job_of(const StreamArgs& a, int i) {
  if (a.jobs.jobs) return a.jobs.jobs[i];
  if (a.jobs.expert) return {expert_of_copy(a.jobs, i), i, 1, 0};
  return {0, i * N, min(N, a.rows - i * N), 0};
}
template <int N>
__device__ int job_count(const StreamArgs& a) {
  if (a.jobs.jobs) return *a.jobs.count;
  return a.jobs.expert ? a.jobs.capacity : (a.rows + N - 1) / N;
}

// Who walks: the only thread that claims tiles, the thread that loads rows, or the warps that
// multiply.
enum class Walker { kClaims, kThread, kWarps };

// This block's slices, in order: an equal part of all chunks (stream-K), or whole tiles. With
// JobList::known there are two lines of chunks, and a block has a part of each: those of the known
// jobs come first.
template <int N, Walker kWalker>
class SliceWalk {
 public:
  // Reads the number of jobs.
  __device__ SliceWalk(const StreamArgs& a, ClaimQueue& queue)
      : a_(a), queue_(queue), tiles_(job_count<N>(a) * a.tiles) {
    if (!a.split) return;
    later_ = tiles_ - a.jobs.known * a.tiles;
    if (a.jobs.known > 0)
      begin_line(1, later_, tiles_ - later_);
    else
      begin_late_line();
  }
  // Returns whether next() will read the list of jobs, or of experts, for the first time.
  __device__ bool needs_list() const { return line_ == 1 && walk_.ended(); }

  __device__ bool next(TileSlice* s) {
    if (a_.split) return next_part(s);
    s->begin = 0;
    s->end = a_.chunks;
    s->first_block = s->last_block = blockIdx.x;
    if (a_.claims) return next_claimed(s);
    const int t = static_cast<int>(blockIdx.x) + turn_of_tiles_++ * static_cast<int>(gridDim.x);
    if (t >= tiles_) return false;
    deal(s, t);
    return true;
  }

 private:
  __device__ void begin_line(int line, int first_tile, int tiles) {
    line_ = line;
    per_block_ = (tiles * a_.chunks + gridDim.x - 1) / gridDim.x;
    const int at = static_cast<int>(blockIdx.x) * per_block_;
    walk_ = LineWalk(first_tile, a_.tiles, a_.chunks, at, min(tiles * a_.chunks, at + per_block_));
  }
  __device__ void begin_late_line() { begin_line(0, 0, later_); }

  __device__ bool next_part(TileSlice* s) {
    if (needs_list()) begin_late_line();
    if (walk_.ended()) return false;
    const int first = walk_.tile_begin();
    const LineSlice slice = walk_.next(a_.tiles, a_.chunks);
    if (slice.begin > 0 || slice.end < a_.chunks) {
      s->first_block = first / per_block_;
      s->last_block = (first + a_.chunks - 1) / per_block_;
    }
    s->line = line_;
    s->job = job_of<N>(a_, slice.job);
    s->tile = slice.tile;
    s->begin = slice.begin;
    s->end = slice.end;
    return true;
  }

  // Job and tile of the tile that is dealt out as number `t`.
  __device__ void deal(TileSlice* s, int t) const {
    int job = t / a_.tiles;
    s->tile = t % a_.tiles;
    if constexpr (N >= kFewestLines) {
      if (a_.jobs_at_once > 1) {
        const int first = job / a_.jobs_at_once * a_.jobs_at_once, at = t - first * a_.tiles;
        const int jobs = min(a_.jobs_at_once, tiles_ / a_.tiles - first);
        job = first + at % jobs;
        s->tile = at / jobs;
      }
    }
    s->job = job_of<N>(a_, job);
  }

  __device__ bool next_claimed(TileSlice* s) {
    const int slot = turn_.stage;
    int t;
    if constexpr (kWalker == Walker::kClaims) {
      t = turn_of_tiles_++ == 0 ? static_cast<int>(blockIdx.x) : ahead_;
      if (t < tiles_) s->job = a_.jobs.jobs[t / a_.tiles];
      barrier_wait(shared_address(queue_.empty + slot), turn_.parity ^ 1);
      queue_.tile[slot] = t;
      queue_.job[slot] = s->job;
      barrier_arrive(shared_address(queue_.full + slot));
      if (t < tiles_)
        ahead_ = static_cast<int>(gridDim.x + atomicAdd(a_.claims, 1u));
      else
        leave();
    } else {
      barrier_wait(shared_address(queue_.full + slot), turn_.parity);
      t = queue_.tile[slot];
      s->job = queue_.job[slot];
      if constexpr (kWalker == Walker::kWarps) __syncwarp();
      if (kWalker == Walker::kThread || threadIdx.x % 32 == 0)
        barrier_arrive(shared_address(queue_.empty + slot));
    }
    turn_.advance();
    s->tile = t % a_.tiles;
    return t < tiles_;
  }
  // The last block that has nothing left to claim makes the counters ready for another kernel.
  __device__ void leave() {
    if (atomicAdd(a_.claims + 1, 1u) + 1 != gridDim.x) return;
    a_.claims[0] = a_.claims[1] = 0;
  }

  const StreamArgs& a_;
  ClaimQueue& queue_;
  int tiles_, later_ = 0, line_ = 0, per_block_ = 0, turn_of_tiles_ = 0;
  LineWalk walk_;
  int ahead_ = 0;
  RingTurn<ClaimQueue::kSlots> turn_;
};

}  // namespace skiff::cuda::streamed

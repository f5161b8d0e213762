// ops/cuda/linear/stream_kernel.cuh -- the kernel behind stream.h.
//
// Two warpgroups multiply, one warp feeds them. A tile is 128 weight rows by N rows of x, cut into
// chunks of 64 along the inner dimension; each chunk is a stage of a ring in shared memory.
// In a gated product the 128 weight rows are 64 gate and 64 up rows, interleaved by eight, so that
// the thread that holds a gate also holds its up.
#pragma once
#include <cuda_bf16.h>

#include "ops/cuda/activation.cuh"
#include "ops/cuda/hopper/copy.cuh"
#include "ops/cuda/hopper/wgmma.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/jobs.h"
#include "ops/cuda/vector.cuh"

namespace skiff::cuda {

constexpr int kTileRows = 128, kChunk = 64, kConsumers = 256, kStreamThreads = kConsumers + 32;
constexpr int kCounterBytes = 4096;  // at the start of the workspace

struct StreamArgs {
  JobList jobs;     // empty: rows [0, rows) of x in jobs of N
  bool one_row;     // all jobs meet row 0 of x, the only one
  bool jobs_early;  // the list was complete before the previous kernel let this one start
  int rows, tiles, chunks;
  bool split;         // tiles are cut along the inner dimension to share them out evenly
  bool next_at_once;  // the next kernel may start before this one's predecessor has ended
  Keep keep_weights;
  void* out;
  int64_t out_stride;
  bool out_f32;
  bool out_lines;  // that can be written 16 bytes at a time
  int features;    // columns of out
  const float* bias;
  Act act;
  unsigned* counters;
  float* partials;
};

// As much of a multiprocessor's shared memory as leaves small kernels a corner to run in.
constexpr int stream_stages(int n) { return n == 256 ? 4 : 205 * 1024 / ((128 + n) * 128); }
constexpr int stage_bytes(int n) { return (kTileRows + n) * kChunk * 2; }
// Rows of outputs on their way out, 16 bytes apart in banks.
constexpr int kOutBytes = 32 * (64 * 2 + 16);  // of a warpgroup
constexpr size_t stream_shared(int n) {
  return 1024 + static_cast<size_t>(stream_stages(n)) * stage_bytes(n) +
         (n == 256 ? 2 * kOutBytes : 0);
}

// Chunks [begin, end) of one tile.
struct Segment {
  int job, tile, begin, end;
  int first_block, last_block;  // who else works on the tile
};

// The share of this block, in order.
class Share {
 public:
  __device__ Share(const StreamArgs& a, int jobs) : a_(a), tiles_(jobs * a.tiles) {
    if (!a.split) return;
    per_block_ = (tiles_ * a.chunks + gridDim.x - 1) / gridDim.x;
    at_ = blockIdx.x * per_block_;
    end_ = min(tiles_ * a.chunks, at_ + per_block_);
  }
  __device__ bool next(Segment* s) {
    int t;
    if (a_.split) {
      if (at_ >= end_) return false;
      t = at_ / a_.chunks;
      const int first = t * a_.chunks;
      s->begin = at_ - first;
      s->end = min(a_.chunks, end_ - first);
      s->first_block = first / per_block_;
      s->last_block = (first + a_.chunks - 1) / per_block_;
      at_ = first + s->end;
    } else {
      t = blockIdx.x + at_++ * gridDim.x;
      if (t >= tiles_) return false;
      s->begin = 0;
      s->end = a_.chunks;
      s->first_block = s->last_block = blockIdx.x;
    }
    s->job = t / a_.tiles;
    s->tile = t % a_.tiles;
    return true;
  }

 private:
  const StreamArgs& a_;
  int tiles_, per_block_ = 0, at_ = 0, end_ = 0;
};

template <int N>
__device__ Job job_of(const StreamArgs& a, int i) {
  if (a.jobs.jobs) return a.jobs.jobs[i];
  if (a.jobs.expert) return {a.jobs.expert[i], i, 1, 0};
  return {0, i * N, min(N, a.rows - i * N), 0};
}
template <int N>
__device__ int job_count(const StreamArgs& a) {
  if (a.jobs.jobs) return *a.jobs.count;
  return a.jobs.expert ? a.jobs.capacity : (a.rows + N - 1) / N;
}

// The ring, as one side goes round it.
template <int kStages>
struct Turn {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

// Over the chunks of this block's share.
template <int N>
struct Walk {
  const StreamArgs& a;
  Share share;
  Segment segment = {};
  Job job = {};
  int chunk = -1;
  __device__ Walk(const StreamArgs& args, int jobs) : a(args), share(args, jobs) {}
  __device__ bool next() {
    if (++chunk < segment.end) return true;
    if (!share.next(&segment)) {
      segment.end = chunk = 0;
      --chunk;
      return false;
    }
    job = job_of<N>(a, segment.job);
    chunk = segment.begin;
    return true;
  }
};

template <int N, bool kGated>
struct Stream {
  static constexpr int kStages = stream_stages(N);
  static constexpr int kWeightBytes = kTileRows * kChunk * 2, kStageBytes = stage_bytes(N);

  const CUtensorMap &w_map, &x_map;
  const StreamArgs& a;
  uint32_t ring, full, empty;  // shared addresses
  char* out_rows;              // shared, N == 256 only

  __device__ void fetch_weights(const Segment& s, const Job& job, int chunk, int stage) {
    const uint32_t barrier = full + 8 * stage, to = ring + stage * kStageBytes;
    barrier_expect(barrier, kStageBytes);
    if constexpr (kGated)
      copy_tile(to, w_map, barrier, chunk * kChunk, 0, 0, s.tile * (kTileRows / 16), job.expert,
                a.keep_weights);
    else
      copy_tile(to, w_map, barrier, chunk * kChunk, s.tile * kTileRows, 0, 0, job.expert,
                a.keep_weights);
  }
  __device__ void fetch_rows(const Job& job, int chunk, int stage) {
    copy_tile(ring + stage * kStageBytes + kWeightBytes, x_map, full + 8 * stage, chunk * kChunk,
              a.one_row ? 0 : job.first);
  }

  // One thread. As many weights as the ring holds go before the wait, their rows of x after it.
  // A multiprocessor holds one of these blocks. The next product's takes its place as soon as it
  // ends, and fills its ring while the results of this product and of the small kernels between
  // are handed over: the memory hardly rests.
  __device__ void produce() {
    if (a.next_at_once) let_next_start();
    const bool early = (!a.jobs.jobs && !a.jobs.expert) || a.jobs_early;
    if (!early) wait_for_previous();
    const int jobs = job_count<N>(a);
    Walk<N> loads(a, jobs), rows(a, jobs);
    for (int i = 0; i < kStages && loads.next(); ++i)
      fetch_weights(loads.segment, loads.job, loads.chunk, i);
    if (early) wait_for_previous();
    if (!a.next_at_once) let_next_start();
    for (int i = 0; i < kStages && rows.next(); ++i) fetch_rows(rows.job, rows.chunk, i);
    Turn<kStages> turn;
    while (loads.next()) {
      barrier_wait(empty + 8 * turn.stage, turn.parity);
      fetch_weights(loads.segment, loads.job, loads.chunk, turn.stage);
      fetch_rows(loads.job, loads.chunk, turn.stage);
      turn.advance();
    }
  }

  __device__ void consume() {
    wait_for_previous();
    Share share(a, job_count<N>(a));
    Segment s;
    Turn<kStages> turn;
    float sum[N / 2];
    while (share.next(&s)) {
      const Job job = job_of<N>(a, s.job);
      if constexpr (N == 256) {
        // What is left over of an expert's rows may be much less than a whole job.
        if (job.rows <= 64)
          multiply<64>(sum, s, turn);
        else if (job.rows <= 128)
          multiply<128>(sum, s, turn);
        else
          multiply<N>(sum, s, turn);
      } else {
        multiply<N>(sum, s, turn);
      }
      if (s.begin == 0 && s.end == a.chunks)
        store_tile(sum, s, job);
      else
        share_tile(sum, s, job);
    }
  }

  // The first M of N rows of x.
  template <int M>
  __device__ void multiply(float (&sum)[N / 2], const Segment& s, Turn<kStages>& turn) {
    float(&part)[M / 2] = reinterpret_cast<float(&)[M / 2]>(sum);
    const int group = threadIdx.x / 128;
    int before = -1;  // the stage that the products still on their way read
    for (int c = s.begin; c < s.end; ++c) {
      barrier_wait(full + 8 * turn.stage, turn.parity);
      const uint32_t at = ring + turn.stage * kStageBytes;
      const uint64_t w = wgmma_operand(at + group * (kWeightBytes / 2));
      const uint64_t x = wgmma_operand(at + kWeightBytes);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kChunk / 16; ++k)
        wgmma<M>(part, w + k * kWgmmaStep, x + k * kWgmmaStep, c > s.begin || k > 0);
      wgmma_commit();
      wgmma_wait<1>();
      if (before >= 0 && threadIdx.x % 128 == 0) barrier_arrive(empty + 8 * before);
      before = turn.stage;
      turn.advance();
    }
    wgmma_wait<0>();
    if (threadIdx.x % 128 == 0) barrier_arrive(empty + 8 * before);
  }

  __device__ void write(int64_t row, int feature, float value) {
    put(a.out, a.out_f32, row * a.out_stride + feature, value);
  }
  __device__ float bias(int feature) { return a.bias ? a.bias[feature] : 0.0f; }
  static constexpr int kFeatures = kGated ? kTileRows / 2 : kTileRows;  // of a tile

  // A whole tile, from the registers.
  __device__ void store_tile(const float (&sum)[N / 2], const Segment& s, const Job& job) {
    if constexpr (N == 256) {
      if (a.out_lines && a.out_f32) return store_rows<float>(sum, s, job);
      if (a.out_lines) return store_rows<__nv_bfloat16>(sum, s, job);
    }
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int f0 = s.tile * kFeatures + warp * (kGated ? 8 : 16) + lane / 4;
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int n = 8 * j + 2 * (lane % 4) + i;
        if (n >= job.rows) continue;
        if constexpr (kGated) {
          if (f0 < a.features)
            write(job.first + n, f0, activate(sum[4 * j + i], a.act) * sum[4 * j + 2 + i]);
        } else {
          if (f0 < a.features) write(job.first + n, f0, sum[4 * j + i] + bias(f0));
          if (f0 + 8 < a.features) write(job.first + n, f0 + 8, sum[4 * j + 2 + i] + bias(f0 + 8));
        }
      }
    }
  }

  // The same through shared memory, so that whole lines are written: each warpgroup its own
  // features, some rows of x at a time.
  template <class Out>
  __device__ void store_rows(const float (&sum)[N / 2], const Segment& s, const Job& job) {
    constexpr int kWide = kFeatures / 2;  // features of a warpgroup
    constexpr int kPiece = 16 / sizeof(Out), kPieces = kWide / kPiece;
    constexpr int kPitch = kWide * sizeof(Out) + 16, kRows = sizeof(Out) == 2 ? 32 : 16;
    static_assert(kRows * kPitch <= kOutBytes);
    const int group = threadIdx.x / 128, thread = threadIdx.x % 128, lane = threadIdx.x % 32;
    char* rows = out_rows + group * kOutBytes;
    const int f = thread / 32 * (kGated ? 8 : 16) + lane / 4;  // within the warpgroup
    const int f0 = s.tile * kFeatures + group * kWide;
    const float b0 = !kGated && f0 + f < a.features ? bias(f0 + f) : 0.0f;
    const float b1 = !kGated && f0 + f + 8 < a.features ? bias(f0 + f + 8) : 0.0f;
#pragma unroll
    for (int part = 0; part < N / kRows; ++part) {
      if (part * kRows >= job.rows) break;
      named_sync(1 + group, 128);
#pragma unroll
      for (int jj = 0; jj < kRows / 8; ++jj) {
        const int j = part * (kRows / 8) + jj;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          Out* row = reinterpret_cast<Out*>(rows + (8 * jj + 2 * (lane % 4) + i) * kPitch);
          if constexpr (kGated) {
            row[f] = static_cast<Out>(activate(sum[4 * j + i], a.act) * sum[4 * j + 2 + i]);
          } else {
            row[f] = static_cast<Out>(sum[4 * j + i] + b0);
            row[f + 8] = static_cast<Out>(sum[4 * j + 2 + i] + b1);
          }
        }
      }
      named_sync(1 + group, 128);
#pragma unroll
      for (int p = thread; p < kRows * kPieces; p += 128) {
        const int n = part * kRows + p / kPieces, feature = f0 + p % kPieces * kPiece;
        if (n >= job.rows || feature >= a.features) continue;
        *reinterpret_cast<uint4*>(static_cast<Out*>(a.out) + (job.first + n) * a.out_stride +
                                  feature) =
            *reinterpret_cast<const uint4*>(rows + p / kPieces * kPitch + p % kPieces * 16);
      }
    }
  }

  // [N][kTileRows]; each block needs two at most: one for a tile that others began, one for a tile
  // that it begins.
  __device__ float* partial(int block, int first_block) {
    return a.partials + int64_t{2 * block + (block == first_block)} * (kTileRows * N);
  }

  // A part of a tile. The block that comes last adds up all parts in the order of the chunks.
  __device__ void share_tile(const float (&sum)[N / 2], const Segment& s, const Job& job) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float* mine = partial(blockIdx.x, s.first_block) + warp * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int n = 8 * j + 2 * (lane % 4) + i;
        if (n >= job.rows) continue;
        __stcg(mine + n * kTileRows, sum[4 * j + i]);
        __stcg(mine + n * kTileRows + 8, sum[4 * j + 2 + i]);
      }
    }
    __threadfence();
    named_sync(3, kConsumers);
    __shared__ unsigned arrived;
    const unsigned others = s.last_block - s.first_block;
    if (threadIdx.x == 0) {
      arrived = atomicAdd(a.counters + s.first_block, 1u);
      if (arrived == others) a.counters[s.first_block] = 0;
    }
    named_sync(3, kConsumers);
    if (arrived != others) return;
    __threadfence();
    for (int i = threadIdx.x; i < job.rows * (kFeatures / 4); i += kConsumers)
      add_parts(s, job, i / (kFeatures / 4), i % (kFeatures / 4) * 4);
  }

  __device__ float4 parts(const Segment& s, int at) {
    constexpr int kAtOnce = 4;
    float4 v = {0, 0, 0, 0};
    for (int b = s.first_block; b <= s.last_block; b += kAtOnce) {
      float4 p[kAtOnce] = {};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (b + i <= s.last_block)
          p[i] = __ldcg(reinterpret_cast<const float4*>(partial(b + i, s.first_block) + at));
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        v = {v.x + p[i].x, v.y + p[i].y, v.z + p[i].z, v.w + p[i].w};
    }
    return v;
  }
  __device__ void add_parts(const Segment& s, const Job& job, int n, int f) {
    float value[4];
    if constexpr (kGated) {
      const int at = n * kTileRows + f / 8 * 16 + f % 8;
      const float4 gate = parts(s, at), up = parts(s, at + 8);
      const float g[4] = {gate.x, gate.y, gate.z, gate.w}, u[4] = {up.x, up.y, up.z, up.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) value[i] = activate(g[i], a.act) * u[i];
    } else {
      const float4 v = parts(s, n * kTileRows + f);
      value[0] = v.x, value[1] = v.y, value[2] = v.z, value[3] = v.w;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int feature = s.tile * kFeatures + f + i;
      if (feature < a.features)
        write(job.first + n, feature, value[i] + (kGated ? 0 : bias(feature)));
    }
  }
};

template <int N, bool kGated>
__global__ void __launch_bounds__(kStreamThreads, 1)
    stream_kernel(const __grid_constant__ CUtensorMap w_map,
                  const __grid_constant__ CUtensorMap x_map, const __grid_constant__ StreamArgs a) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000  // StreamedProducts::takes() nothing elsewhere
  using S = Stream<N, kGated>;
  extern __shared__ char dynamic[];
  __shared__ alignas(8) uint64_t barriers[2 * S::kStages];
  char* ring = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const uint32_t full = shared_address(barriers), empty = full + 8 * S::kStages;
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      barrier_init(full + 8 * i, 1);
      barrier_init(empty + 8 * i, kConsumers / 128);
    }
    barrier_init_done();
    fence_async();
  }
  __syncthreads();
  S stream = {
      w_map, x_map, a, shared_address(ring), full, empty, ring + S::kStages * S::kStageBytes};
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) stream.produce();
  } else {
    stream.consume();
  }
#endif
}

}  // namespace skiff::cuda

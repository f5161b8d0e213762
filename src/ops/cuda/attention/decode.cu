// Attention of few rows over long context: split-KV by equal shares (plan.h). Blocks are
// persistent. One warp keeps the copy engine busy; four work on a quarter of every tile each, 16
// positions, with softmaxes of their own that meet only at the end of a head. The query vectors of
// a kv head are the 16 rows of a matrix product. Probabilities go into the second product as two
// bf16 numbers, so that they lose nothing: the kernel waits for memory, not for the tensor cores.
#include <cuda_bf16.h>

#include <cmath>

#include "ops/cuda/attention/attend_kernels.h"
#include "ops/cuda/attention/paging.cuh"
#include "ops/cuda/hopper/copy.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/vector.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda {
namespace {

constexpr int kQuarters = 4;  // of a tile
constexpr int kHalf = 8;      // rows of a matrix product come in two halves
constexpr int kRuns = 8;      // more than stages
constexpr int kComputeBarrier = 1;

template <int kDim>
struct Shape {
  static constexpr int kStages = kDim == 64 ? 6 : 3;
  static constexpr int kBlocks = kDim == 256 ? 1 : 2;        // per multiprocessor
  static constexpr int kTileBytes = kTile * kDim * 2;        // of keys, or of values
  static constexpr int kColumns = kDim == 256 ? 128 : kDim;  // of values, that one warp adds up
  static constexpr int kWarps = kQuarters * kDim / kColumns;
  static constexpr int kComputing = 32 * kWarps;
  static constexpr int kThreads = kComputing + 32;
};

// A run of tiles of one kv head: what the line of tiles gives a block at once.
struct Run {
  DecodeShare share;
  int head, first, tiles;  // first: tile of the share
  bool last;               // of this block
};

template <int kDim>
struct Shared {
  uint8_t k[Shape<kDim>::kStages][Shape<kDim>::kTileBytes];
  uint8_t v[Shape<kDim>::kStages][Shape<kDim>::kTileBytes];
  float o[kQuarters][kHalf][kDim];
  float top[kQuarters][kPackedRows], sum[kQuarters][kPackedRows];
  uint64_t full[Shape<kDim>::kStages], empty[Shape<kDim>::kStages];
  Run runs[kRuns];  // the copying warp tells the others here, before a run's first tile is full
  int arrived_last;
};

// Walks the tiles that the plan gives this block.
class Walk {
 public:
  __device__ Walk(const DecodeArgs& d) : d_(d) {
    at_ = static_cast<int>(blockIdx.x) * d.plan.head->per_block;
    end_ = min(at_ + d.plan.head->per_block, d.plan.head->total);
    share_ = d.plan.block_share[blockIdx.x];
  }
  __device__ bool any() const { return at_ < end_; }
  __device__ bool next(Run& run) {
    if (!any()) return false;
    run.share = d_.plan.shares[share_];
    const int offset = at_ - run.share.base;
    run.head = offset / run.share.tiles;
    run.first = offset % run.share.tiles;
    run.tiles = min(run.share.tiles - run.first, end_ - at_);
    at_ += run.tiles;
    run.last = at_ >= end_;
    if (run.head + 1 == d_.args.cache.kv_heads && run.first + run.tiles == run.share.tiles) {
      ++share_;
    }
    return true;
  }

 private:
  const DecodeArgs& d_;
  int at_, end_, share_;
};

// The first position that any row of a share sees.
__device__ int first_seen(const DecodeShare& s, int window) {
  return window > 0 ? max(0, s.kv_len - s.rows + 1 - window) : 0;
}

// Brings the queries of a run near, so that nobody waits for them when the run begins.
template <int kDim>
__device__ void touch_queries(const DecodeArgs& d, const Run& run) {
  const int group = d.args.group, lines = kDim * 2 / 128;
  const auto* q = static_cast<const __nv_bfloat16*>(d.args.q);
  for (int i = static_cast<int>(threadIdx.x) % 32; i < run.share.rows * group * lines; i += 32) {
    const int packed = i / lines;
    const auto* at = q + (run.share.row + packed / group) * d.args.q_stride +
                     (run.head * group + packed % group) * kDim + i % lines * 64;
    uint32_t unused;
    asm volatile("ld.global.ca.b32 %0, [%1];" : "=r"(unused) : "l"(at));
  }
}

// Whether nobody writes positions [.., end) of a share's sequence in this step: its new positions
// are no more than the rows of all its shares.
__device__ bool is_old(const DecodeShare& s, int end) {
  return end <= s.kv_len - kPackedRows * kMostShares;
}

// Run by a whole warp, all of whose threads go the same way. Fills the ring with what earlier steps
// left in the cache before the kernels ahead have ended; what they write comes after the wait.
template <int kDim>
__device__ void copy_tiles(const DecodeArgs& d, Walk walk, Run run, const CUtensorMap& k,
                           const CUtensorMap& v, Shared<kDim>& shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int page_size = d.args.cache.page_size, page_shift = d.args.page_shift;
  const int box = min(page_size, kTile), box_shift = min(page_shift, 6), boxes = kTile / box;
  const int box_bytes = box * 128;
  int stage = 0, number = 0;
  uint32_t phase = 1;
  bool waited = false;
  do {
    const int32_t* pages = d.args.rows.pages + run.share.seq * d.args.rows.pages_stride;
    const int begin = (run.share.first_tile + run.first) * kTile;
    const int end = min(begin + run.tiles * kTile, run.share.kv_len);
    const int seen = max(begin, first_seen(run.share, d.args.window));
    // Lane i looks up the page of the i-th box of a batch of 32; the next batch is on its way.
    const auto look_up = [&](int batch) {
      const int t = begin + (batch * 32 + lane) * box;
      return t < end && t + box > seen ? pages[t >> page_shift] : 0;
    };
    int page = look_up(0), next_page = look_up(1);
    if (waited) touch_queries<kDim>(d, run);
    for (int tile = 0; tile < run.tiles; ++tile) {
      if (!waited && !is_old(run.share, begin + (tile + 1) * kTile)) {
        wait_for_previous();
        waited = true;
      }
      const int first_box = tile * boxes;
      if (tile > 0 && first_box % 32 == 0) {
        page = next_page;
        next_page = look_up(first_box / 32 + 1);
      }
      const int t0 = begin + tile * kTile;
      const int skip = max(0, (seen - t0) >> box_shift);
      const int stop = min(boxes, (end - t0 + box - 1) >> box_shift);
      const uint32_t full = shared_address(&shared.full[stage]);
      const uint32_t to_k = shared_address(shared.k[stage]), to_v = shared_address(shared.v[stage]);
      barrier_wait(shared_address(&shared.empty[stage]), phase);
      if (elected()) {
        if (tile == 0) shared.runs[number % kRuns] = run;
        barrier_expect(full, static_cast<uint32_t>((stop - skip) * box_bytes * (kDim / 64) * 2));
      }
      __syncwarp();
      for (int b = skip; b < stop; ++b) {
        const int from = __shfl_sync(kAllLanes, page, (first_box + b) % 32);
        const int in_page = (t0 + b * box) & (page_size - 1);
        if (elected()) {
#pragma unroll
          for (int c = 0; c < kDim / 64; ++c) {
            const int at = c * kTile * 128 + b * box_bytes;
            copy_box(to_k + at, &k, full, c * 64, run.head, in_page, from);
          }
#pragma unroll
          for (int c = 0; c < kDim / 64; ++c) {
            const int at = c * kTile * 128 + b * box_bytes;
            copy_box(to_v + at, &v, full, c * 64, run.head, in_page, from);
          }
        }
        __syncwarp();
      }
      if (++stage == Shape<kDim>::kStages) {
        stage = 0;
        phase ^= 1;
      }
    }
    ++number;
  } while (walk.next(run));
}

// Byte `chunk` * 16 of row `row` of a tile whose rows are cut into pieces of 128 bytes, swizzled.
__device__ __forceinline__ uint32_t place(int row, int chunk) {
  return static_cast<uint32_t>((chunk / 8) * kTile * 128 + row * 128 +
                               (((chunk % 8) ^ (row % 8)) * 16));
}

// What one warp carries through a run: queries, and the softmax so far of rows lane / 4 and
// lane / 4 + 8. Maxima are in units of log2.
template <int kDim>
struct Softmax {
  static constexpr int kColumns = Shape<kDim>::kColumns;
  uint32_t q[kDim / 16][4];
  float o[kColumns / 8][4];
  float top[2], sum[2];
  int limit[2];  // the last position that the row sees
};

// Which positions of a tile, and which columns of the values, a warp works on.
struct Place {
  int quarter, column;
};
template <int kDim>
__device__ Place place_of_warp() {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  return {warp % kQuarters, warp / kQuarters * Shape<kDim>::kColumns};
}

template <int kDim>
__device__ void begin_run(const DecodeArgs& d, const Run& run, Softmax<kDim>& s) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto* q = static_cast<const __nv_bfloat16*>(d.args.q);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = lane / 4 + half * kHalf, group = d.args.group;
    const bool real = i < run.share.rows * group;
    const int64_t row = run.share.row + (real ? i / group : 0);
    const int head = run.head * group + (real ? i % group : 0);
    const __nv_bfloat16* from = q + row * d.args.q_stride + head * kDim + lane % 4 * 2;
#pragma unroll
    for (int c = 0; c < kDim / 16; ++c) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        s.q[c][half + 2 * k] = real ? *reinterpret_cast<const uint32_t*>(from + c * 16 + k * 8) : 0;
      }
    }
    s.top[half] = -INFINITY;
    s.sum[half] = 0;
    s.limit[half] = run.share.kv_len - run.share.rows + i / group;
  }
#pragma unroll
  for (int n = 0; n < Shape<kDim>::kColumns / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s.o[n][i] = 0;
  }
}

// 16 positions from t0 on: this warp's quarter of the tile at k and v.
template <int kDim>
__device__ void attend_16(const DecodeArgs& d, const Run& run, Softmax<kDim>& s, int t0, uint32_t k,
                          uint8_t* v) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Place my = place_of_warp<kDim>();
  const int warp_row = my.quarter * 16;
  float score[2][4] = {};
  {
    const int row = warp_row + lane / 16 * 8 + lane % 8, chunk = lane / 8 % 2;
#pragma unroll
    for (int c = 0; c < kDim / 16; ++c) {
      uint32_t b[4];
      load_matrices(b, k + place(row, c * 2 + chunk));
      mma_bf16(score[0], s.q[c], b[0], b[1]);
      mma_bf16(score[1], s.q[c], b[2], b[3]);
    }
  }
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) score[n][i] *= d.scale_log2;
  }
  const int seen = first_seen(run.share, d.args.window), window = d.args.window;
  const bool edge =
      t0 + 15 > run.share.kv_len - run.share.rows || (window > 0 && t0 < run.share.kv_len - window);
  if (edge) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = t0 + n * 8 + lane % 4 * 2 + i % 2, limit = s.limit[i / 2];
        if (t > limit || (window > 0 && t <= limit - window)) score[n][i] = -INFINITY;
      }
    }
  }
  float top[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float x = fmaxf(fmaxf(score[0][2 * half], score[0][2 * half + 1]),
                    fmaxf(score[1][2 * half], score[1][2 * half + 1]));
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
    top[half] = fmaxf(s.top[half], x);
  }
  if (__any_sync(kAllLanes, top[0] > s.top[0] || top[1] > s.top[1])) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float keep = s.top[half] == -INFINITY ? 0.0f : exp2_fast(s.top[half] - top[half]);
      s.top[half] = top[half];
      s.sum[half] *= keep;
#pragma unroll
      for (int n = 0; n < Shape<kDim>::kColumns / 8; ++n) {
        s.o[n][2 * half] *= keep;
        s.o[n][2 * half + 1] *= keep;
      }
    }
  }
  // a[] of the second product: halves of n = 0, then halves of n = 1.
  uint32_t high[4], low[4];
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float base = s.top[half] == -INFINITY ? 0.0f : s.top[half];
      const float a = exp2_fast(score[n][2 * half] - base);
      const float b = exp2_fast(score[n][2 * half + 1] - base);
      s.sum[half] += a + b;
      const uint32_t both = pack_bf16(a, b);
      high[n * 2 + half] = both;
      low[n * 2 + half] = pack_bf16(a - low_bf16(both), b - high_bf16(both));
    }
  }
  // What lies beyond the context may be anything, and zero times anything may be NaN.
  if (edge && (t0 + 16 > run.share.kv_len || t0 < seen)) {
    constexpr int kChunks = Shape<kDim>::kColumns / 8;
#pragma unroll 1
    for (int i = lane; i < 16 * kChunks; i += 32) {
      const int row = i / kChunks, t = t0 + row;
      if (t >= run.share.kv_len || t < seen) {
        const uint32_t at = place(warp_row + row, my.column / 8 + i % kChunks);
        *reinterpret_cast<uint4*>(v + at) = uint4{};
      }
    }
    fence_async();  // the copy engine writes here next
    __syncwarp();
  }
  {
    const int row = warp_row + lane / 8 % 2 * 8 + lane % 8, chunk = lane / 16;
#pragma unroll
    for (int n = 0; n < Shape<kDim>::kColumns / 16; ++n) {
      uint32_t b[4];
      load_matrices_transposed(b, shared_address(v) + place(row, my.column / 8 + n * 2 + chunk));
      mma_bf16(s.o[2 * n], high, b[0], b[1]);
      mma_bf16(s.o[2 * n + 1], high, b[2], b[3]);
      mma_bf16(s.o[2 * n], low, b[0], b[1]);
      mma_bf16(s.o[2 * n + 1], low, b[2], b[3]);
    }
  }
}

// One part of a head that several blocks share: kPackedRows rows of values, maxima, sums.
template <int kDim>
struct Part {
  float o[kPackedRows][kDim], top[kPackedRows], sum[kPackedRows];
};

template <int n>
__device__ void write_out(const DecodeArgs& d, const Run& run, int packed, int dim, int column,
                          const Pack<float, n>& value) {
  const int64_t at = (run.share.row + packed / d.args.group) * d.args.out_stride +
                     (run.head * d.args.group + packed % d.args.group) * dim + column;
  Pack<__nv_bfloat16, n> rounded;
#pragma unroll
  for (int i = 0; i < n; ++i) rounded.at[i] = __float2bfloat16_rn(value.at[i]);
  *reinterpret_cast<Pack<__nv_bfloat16, n>*>(static_cast<__nv_bfloat16*>(d.args.out) + at) =
      rounded;
}

// Reads past the first-level cache, which other blocks' writes do not reach.
template <int n>
__device__ Pack<float, n> load_through(const float* from) {
  Pack<float, n> to;
  if constexpr (n == 2) {
    const float2 x = __ldcg(reinterpret_cast<const float2*>(from));
    to = {x.x, x.y};
  } else {
#pragma unroll
    for (int i = 0; i < n; i += 4) {
      const float4 x = __ldcg(reinterpret_cast<const float4*>(from + i));
      to.at[i] = x.x, to.at[i + 1] = x.y, to.at[i + 2] = x.z, to.at[i + 3] = x.w;
    }
  }
  return to;
}

// The block that comes last to a head adds up its parts, in the order of their positions.
template <int kDim>
__device__ void combine(const DecodeArgs& d, const Run& run, Shared<kDim>& shared,
                        Part<kDim>* parts, int first_block, int blocks) {
  const int tid = static_cast<int>(threadIdx.x);
  __threadfence();
  named_sync(kComputeBarrier, Shape<kDim>::kComputing);
  if (tid == 0) {
    shared.arrived_last = atomicAdd(d.arrived + first_block, 1) == blocks - 1;
    if (shared.arrived_last) d.arrived[first_block] = 0;
    __threadfence();
  }
  named_sync(kComputeBarrier, Shape<kDim>::kComputing);
  if (!shared.arrived_last) return;
  const auto part = [&](int i) { return parts + 2 * (first_block + i) + (i == 0 ? 1 : 0); };
  // A warp takes a row, a lane kColumns neighbouring columns; parts come 32 at a time.
  constexpr int kColumns = kDim / 32;  // of a lane
  using Columns = Pack<float, kColumns>;
  const int lane = tid % 32;
  for (int row = tid / 32; row < run.share.rows * d.args.group; row += Shape<kDim>::kWarps) {
    float top = -INFINITY, sum = 0;
    Columns value = {};
    for (int base = 0; base < blocks; base += 32) {
      const bool real = base + lane < blocks;
      const float my_top = real ? __ldcg(&part(base + lane)->top[row]) : -INFINITY;
      const float my_sum = real ? __ldcg(&part(base + lane)->sum[row]) : 0;
      const float before = top;
      top = fmaxf(top, my_top);
      top = warp_max(top);
      const float floor = top == -INFINITY ? 0.0f : top;
      const float keep = exp2_fast(before - floor), my_keep = exp2_fast(my_top - floor);
      sum = sum * keep + my_sum * my_keep;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) value.at[c] *= keep;
      const int count = min(32, blocks - base);
#pragma unroll 8
      for (int i = 0; i < count; ++i) {
        const float worth = __shfl_sync(kAllLanes, my_keep, i);
        const Columns more = load_through<kColumns>(&part(base + i)->o[row][lane * kColumns]);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) value.at[c] += more.at[c] * worth;
      }
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) value.at[c] /= sum;
    write_out(d, run, row, kDim, lane * kColumns, value);
  }
}

// The four warps' softmaxes become one; it goes out, or to the parts.
template <int kDim>
__device__ void end_run(const DecodeArgs& d, const Run& run, Softmax<kDim>& s,
                        Shared<kDim>& shared) {
  const int tid = static_cast<int>(threadIdx.x), lane = tid % 32;
  const Place my = place_of_warp<kDim>();
  const int rows = run.share.rows * d.args.group, per_block = d.plan.head->per_block;
  auto* parts = reinterpret_cast<Part<kDim>*>(d.parts);
  const bool whole = run.tiles == run.share.tiles;
  Part<kDim>* mine = parts + 2 * blockIdx.x + (run.first == 0 ? 1 : 0);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    s.sum[half] += __shfl_xor_sync(kAllLanes, s.sum[half], 1);
    s.sum[half] += __shfl_xor_sync(kAllLanes, s.sum[half], 2);
    if (lane % 4 == 0) {
      shared.top[my.quarter][lane / 4 + half * kHalf] = s.top[half];
      shared.sum[my.quarter][lane / 4 + half * kHalf] = s.sum[half];
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half * kHalf >= rows) break;
      // Columns are swizzled by row, so that the rows of a fragment meet different banks.
#pragma unroll
    for (int n = 0; n < Shape<kDim>::kColumns / 8; ++n) {
      const int column = (my.column + n * 8 + lane % 4 * 2) ^ (lane / 4 * 8);
      *reinterpret_cast<float2*>(&shared.o[my.quarter][lane / 4][column]) =
          make_float2(s.o[n][2 * half], s.o[n][2 * half + 1]);
    }
    named_sync(kComputeBarrier, Shape<kDim>::kComputing);
    for (int i = tid; i < kHalf * kDim; i += Shape<kDim>::kComputing) {
      const int r = i / kDim, row = half * kHalf + r, column = i % kDim;
      if (row >= rows) break;
      float top = shared.top[0][row], sum = 0, value = 0;
      for (int w = 1; w < kQuarters; ++w) top = fmaxf(top, shared.top[w][row]);
      const float base = top == -INFINITY ? 0.0f : top;
#pragma unroll
      for (int w = 0; w < kQuarters; ++w) {
        const float keep = exp2_fast(shared.top[w][row] - base);
        sum += shared.sum[w][row] * keep;
        value += shared.o[w][r][column ^ (r * 8)] * keep;
      }
      if (whole) {
        write_out(d, run, row, kDim, column, Pack<float, 1>{value / sum});
      } else {
        mine->o[row][column] = value;
        if (column == 0) {
          mine->top[row] = top;
          mine->sum[row] = sum;
        }
      }
    }
    named_sync(kComputeBarrier, Shape<kDim>::kComputing);
  }
  if (whole) return;
  const int begin = run.share.base + run.head * run.share.tiles;
  const int first_block = begin / per_block;
  combine(d, run, shared, parts, first_block,
          (begin + run.share.tiles - 1) / per_block - first_block + 1);
}

// Rows that belong to nobody.
template <int kDim>
__device__ void clear_padding(const DecodeArgs& d) {
  const int cols = kDim * d.args.group * d.args.cache.kv_heads;
  auto* out = static_cast<__nv_bfloat16*>(d.args.out);
  for (int row = d.plan.head->rows_end + static_cast<int>(blockIdx.x); row < d.args.rows.num_tokens;
       row += static_cast<int>(gridDim.x)) {
    for (int c = static_cast<int>(threadIdx.x) * 8; c < cols; c += Shape<kDim>::kComputing * 8) {
      *reinterpret_cast<uint4*>(out + row * d.args.out_stride + c) = uint4{};
    }
  }
}

template <int kDim>
__device__ void attend_tiles(const DecodeArgs& d, Shared<kDim>& shared) {
  int stage = 0;
  uint32_t phase = 0;
  Softmax<kDim> s;
  bool last = false;
  for (int number = 0; !last; ++number) {
    barrier_wait(shared_address(&shared.full[stage]), phase);
    const Run run = shared.runs[number % kRuns];
    last = run.last;
    begin_run(d, run, s);
    const int seen = first_seen(run.share, d.args.window);
    int t0 = (run.share.first_tile + run.first) * kTile + place_of_warp<kDim>().quarter * 16;
    for (int tile = 0; tile < run.tiles; ++tile, t0 += kTile) {
      barrier_wait(shared_address(&shared.full[stage]), phase);
      if (t0 < run.share.kv_len && t0 + 16 > seen) {
        attend_16<kDim>(d, run, s, t0, shared_address(shared.k[stage]), shared.v[stage]);
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&shared.empty[stage]));
      if (++stage == Shape<kDim>::kStages) {
        stage = 0;
        phase ^= 1;
      }
    }
    end_run(d, run, s, shared);
  }
}

template <int kDim>
__global__ void __launch_bounds__(Shape<kDim>::kThreads, Shape<kDim>::kBlocks)
    decode_kernel(const __grid_constant__ DecodeArgs d, const __grid_constant__ CUtensorMap k,
                  const __grid_constant__ CUtensorMap v) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000  // Attention uses it nowhere else
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared<kDim>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape<kDim>::kStages; ++i) {
      barrier_init(shared_address(&shared.full[i]), 1);
      barrier_init(shared_address(&shared.empty[i]), Shape<kDim>::kWarps);
    }
    barrier_init_done();
    prefetch_map(&k);
    prefetch_map(&v);
  }
  __syncthreads();
  // Plan and page table were written before the last kernel that triggers its dependents after its
  // own wait, so they are visible here.
  Walk walk(d);
  if (threadIdx.x >= Shape<kDim>::kComputing) {
    Run run;
    if (walk.next(run)) copy_tiles<kDim>(d, walk, run, k, v, shared);
    return;
  }
  wait_for_previous();
  let_next_start();
  if (walk.any()) attend_tiles<kDim>(d, shared);
  clear_padding<kDim>(d);
#endif
}

template <int kDim>
void start(const DecodeArgs& d, const CUtensorMap& k, const CUtensorMap& v, cudaStream_t stream) {
  const Launch how = {.grid = dim3(static_cast<unsigned>(d.blocks)),
                      .block = dim3(Shape<kDim>::kThreads),
                      .shared = sizeof(Shared<kDim>),
                      .stream = stream};
  allow_shared(decode_kernel<kDim>, how.shared);
  launch(decode_kernel<kDim>, how, d, k, v);
}

}  // namespace

size_t decode_part_bytes() { return sizeof(Part<256>); }

int decode_blocks_per_processor(int head_dim) { return head_dim == 256 ? 1 : 2; }

void start_decode(const DecodeArgs& d, const CUtensorMap& k, const CUtensorMap& v,
                  cudaStream_t stream) {
  if (d.args.head_dim == 64) start<64>(d, k, v, stream);
  if (d.args.head_dim == 128) start<128>(d, k, v, stream);
  if (d.args.head_dim == 256) start<256>(d, k, v, stream);
}

}  // namespace skiff::cuda

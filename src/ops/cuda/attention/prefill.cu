// Attention of many rows. A block takes 128 packed rows (row and head of a group) of one kv head
// and walks back over their context in tiles. One warp feeds the copy engine; two warpgroups
// multiply, 64 rows each, taking turns at the tensor cores, so that one's softmax hides behind the
// other's products, and within each the scores of the next tile are made while values of this one
// are added. The schedule is that of Shah et al. 2024, "FlashAttention-3".
#include <algorithm>

#include "ops/cuda/attention/attend_kernels.h"
#include "ops/cuda/attention/hopper.cuh"
#include "ops/cuda/attention/wgmma.cuh"
#include "ops/cuda/launch.cuh"

namespace skiff::cuda {
namespace {

constexpr int kGroupThreads = 128;
constexpr int kGroups = 2;  // warpgroups that multiply
constexpr int kThreads = (kGroups + 1) * kGroupThreads;
constexpr int kStages = 2;
constexpr int kRowsOfGroup = kPrefillRows / kGroups;
constexpr unsigned kAll = 0xffffffff;
// Named barriers: one per warpgroup for itself, one per warpgroup for its turn.
constexpr int kOwnBarrier = 1, kTurnBarrier = 3;

template <int kDim>
constexpr int kKeys = kDim == 256 ? 64 : 128;  // of a tile

template <int kDim>
struct Shared {
  uint8_t q[kPrefillRows * kDim * 2];  // afterwards the result
  uint8_t k[kStages][kKeys<kDim> * kDim * 2];
  uint8_t v[kStages][kKeys<kDim> * kDim * 2];
  uint64_t k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
};

// What a block works on, and the context that any of its rows sees.
struct Work {
  PrefillTile tile;
  int head, seen, first, end;  // tiles of keys [first, end)

  __device__ Work(const PrefillArgs& p, int keys) {
    const int heads = p.args.cache.kv_heads;
    tile = p.tiles[static_cast<int>(blockIdx.x) / heads];
    head = static_cast<int>(blockIdx.x) % heads;
    seen = p.args.window > 0 ? max(0, tile.kv_len - tile.rows + 1 - p.args.window) : 0;
    first = seen / keys;
    end = (tile.kv_len + keys - 1) / keys;
  }
};

// Where each stage of a ring of kStages stands.
struct Ring {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

template <int kDim>
__device__ void copy_boxes(const CUtensorMap& map, uint8_t* to, uint64_t* full, int boxes, int box,
                           int head, int t0, int page_size, int pages) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int b = 0; b < boxes; ++b) {
    const int page = __shfl_sync(kAll, pages, b);
    if (lane != 0) continue;
#pragma unroll
    for (int c = 0; c < kDim / 64; ++c) {
      copy_box(shared_address(to + (c * kKeys<kDim> + b * box) * 128), &map, shared_address(full),
               c * 64, head, (t0 + b * box) % page_size, page);
    }
  }
}

template <int kDim>
__device__ void copy_tiles(const PrefillArgs& p, const Work& work, const CUtensorMap& k,
                           const CUtensorMap& v, Shared<kDim>& shared) {
  constexpr int kBytes = kKeys<kDim> * kDim * 2;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int page_size = p.args.cache.page_size;
  const int box = min(page_size, kTile), boxes = kKeys<kDim> / box;
  const int32_t* pages = p.args.rows.pages + work.tile.seq * p.args.rows.pages_stride;
  // Boxes that no row sees lie outside the cache, and so are filled with zeros.
  const auto look_up = [&](int tile) {
    const int t = tile * kKeys<kDim> + lane * box;
    const bool any = tile >= work.first && t < work.tile.kv_len && t + box > work.seen;
    return any && lane < boxes ? pages[t / page_size] : -1;
  };
  Ring ring;
  int page = look_up(work.end - 1);
  for (int tile = work.end - 1; tile >= work.first; --tile) {
    const int next = look_up(tile - 1), t0 = tile * kKeys<kDim>;
    if (lane == 0) {
      barrier_wait(shared_address(&shared.k_empty[ring.stage]), ring.phase ^ 1);
      barrier_expect(shared_address(&shared.k_full[ring.stage]), kBytes);
    }
    copy_boxes<kDim>(k, shared.k[ring.stage], &shared.k_full[ring.stage], boxes, box, work.head, t0,
                     page_size, page);
    if (lane == 0) {
      barrier_wait(shared_address(&shared.v_empty[ring.stage]), ring.phase ^ 1);
      barrier_expect(shared_address(&shared.v_full[ring.stage]), kBytes);
    }
    copy_boxes<kDim>(v, shared.v[ring.stage], &shared.v_full[ring.stage], boxes, box, work.head, t0,
                     page_size, page);
    page = next;
    ring.advance();
  }
}

// Byte `chunk` * 16 of a row of the queries' memory.
__device__ __forceinline__ int place(int row, int chunk) {
  return (chunk / 8 * kPrefillRows + row) * 128 + ((chunk % 8) ^ (row % 8)) * 16;
}

// Packed row i of the tile; null past its end.
template <int kDim, class T>
__device__ T* packed_row(const PrefillArgs& p, const Work& work, T* base, int64_t stride, int i) {
  const int group = p.args.group;
  if (i >= work.tile.rows * group) return nullptr;
  return base + (work.tile.row + i / group) * stride +
         static_cast<int64_t>(work.head * group + i % group) * kDim;
}

// Rows [64 * group, ...) of the queries, by the warpgroup that will multiply them.
template <int kDim>
__device__ void load_queries(const PrefillArgs& p, const Work& work, int group, uint8_t* q) {
  const auto* from = static_cast<const __nv_bfloat16*>(p.args.q);
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
#pragma unroll
  for (int i = thread; i < kRowsOfGroup * kDim / 8; i += kGroupThreads) {
    const int row = group * kRowsOfGroup + i / (kDim / 8), chunk = i % (kDim / 8);
    const auto* at = packed_row<kDim>(p, work, from, p.args.q_stride, row);
    const uint4 value = at ? *reinterpret_cast<const uint4*>(at + chunk * 8) : uint4{};
    *reinterpret_cast<uint4*>(q + place(row, chunk)) = value;
  }
  fence_async();
  named_sync(kOwnBarrier + group, kGroupThreads);
}

// Values beyond the context, in the page that holds its end, may be anything.
template <int kDim>
__device__ void clear_tail(int group, int begin, uint8_t* v) {
  for (int i = static_cast<int>(threadIdx.x) % kGroupThreads;
       i < (kKeys<kDim> - begin) * (kDim / 8); i += kGroupThreads) {
    const int row = begin + i / (kDim / 8), chunk = i % (kDim / 8);
    *reinterpret_cast<uint4*>(v + (chunk / 8 * kKeys<kDim> + row) * 128 + chunk % 8 * 16) = uint4{};
  }
  fence_async();
  named_sync(kOwnBarrier + group, kGroupThreads);
}

// The softmax so far of the two rows of a thread, lane / 4 and lane / 4 + 8 of its warp's 16.
struct Softmax {
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, keep[2];
  int limit[2];  // the last position that the row sees

  // Scores become weights; keep[] is what earlier sums are worth now.
  template <int n>
  __device__ __forceinline__ void step(float (&s)[n], float scale_log2, int t0, bool edge,
                                       int window) {
    if (edge) {
      const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
      for (int i = 0; i < n; ++i) {
        const int t = t0 + i / 4 * 8 + column + i % 2, last = limit[i / 2 % 2];
        if (t > last || (window > 0 && t <= last - window)) s[i] = -INFINITY;
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float x = s[2 * half];
#pragma unroll
      for (int i = 0; i < n; i += 4) x = fmaxf(x, fmaxf(s[i + 2 * half], s[i + 2 * half + 1]));
      x = fmaxf(x, __shfl_xor_sync(kAll, x, 1));
      x = fmaxf(x, __shfl_xor_sync(kAll, x, 2));
      const float before = top[half];
      top[half] = fmaxf(before, x);
      const float base = top[half] == -INFINITY ? 0.0f : top[half] * scale_log2;
      keep[half] = exp2_fast(before * scale_log2 - base);
      float total = 0;
#pragma unroll
      for (int i = 0; i < n; i += 4) {
        s[i + 2 * half] = exp2_fast(s[i + 2 * half] * scale_log2 - base);
        s[i + 2 * half + 1] = exp2_fast(s[i + 2 * half + 1] * scale_log2 - base);
        total += s[i + 2 * half] + s[i + 2 * half + 1];
      }
      sum[half] = sum[half] * keep[half] + total;
    }
  }
};

template <int n>
__device__ __forceinline__ void pack(uint32_t (&to)[n / 8][4], const float (&s)[n]) {
#pragma unroll
  for (int i = 0; i < n / 2; ++i) to[i / 4][i % 4] = pack_bf16(s[2 * i], s[2 * i + 1]);
}

template <int kDim>
__device__ __forceinline__ void multiply_keys(float (&s)[kKeys<kDim> / 2], uint32_t q, uint32_t k) {
#pragma unroll
  for (int i = 0; i < kDim / 16; ++i) {
    multiply_rows<kKeys<kDim>>(s, describe(q + i / 4 * kPrefillRows * 128 + i % 4 * 32),
                               describe(k + i / 4 * kKeys<kDim> * 128 + i % 4 * 32), i > 0);
  }
}
template <int kDim>
__device__ __forceinline__ void multiply_values(float (&o)[kDim / 2],
                                                const uint32_t (&weights)[kKeys<kDim> / 16][4],
                                                uint32_t v) {
#pragma unroll
  for (int i = 0; i < kKeys<kDim> / 16; ++i) {
    multiply_columns<kDim>(o, weights[i], describe(v + i * 2048, kKeys<kDim> * 128));
  }
}

template <int kDim>
__device__ void write_rows(const PrefillArgs& p, const Work& work, int group, uint8_t* rows,
                           const float (&o)[kDim / 2], Softmax& softmax) {
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads, lane = thread % 32;
  const int row = group * kRowsOfGroup + thread / 32 * 16 + lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = softmax.sum[half];
    sum += __shfl_xor_sync(kAll, sum, 1);
    sum += __shfl_xor_sync(kAll, sum, 2);
    const float scale = 1 / sum;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      *reinterpret_cast<uint32_t*>(rows + place(row + 8 * half, n) + lane % 4 * 4) =
          pack_bf16(o[n * 4 + 2 * half] * scale, o[n * 4 + 2 * half + 1] * scale);
    }
  }
  named_sync(kOwnBarrier + group, kGroupThreads);
  auto* out = static_cast<__nv_bfloat16*>(p.args.out);
#pragma unroll
  for (int i = thread; i < kRowsOfGroup * kDim / 8; i += kGroupThreads) {
    const int r = group * kRowsOfGroup + i / (kDim / 8), chunk = i % (kDim / 8);
    auto* at = packed_row<kDim>(p, work, out, p.args.out_stride, r);
    if (at)
      *reinterpret_cast<uint4*>(at + chunk * 8) = *reinterpret_cast<uint4*>(rows + place(r, chunk));
  }
}

template <int kDim>
__device__ void attend(const PrefillArgs& p, const Work& work, int group, Shared<kDim>& shared) {
  constexpr int kTileKeys = kKeys<kDim>;
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads, lane = thread % 32;
  const int other = 1 - group, window = p.args.window;
  Softmax softmax;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = group * kRowsOfGroup + thread / 32 * 16 + lane / 4 + 8 * half;
    softmax.limit[half] =
        work.tile.kv_len - work.tile.rows + min(i / p.args.group, work.tile.rows - 1);
  }
  load_queries<kDim>(p, work, group, shared.q);
  const uint32_t q = shared_address(shared.q) + group * kRowsOfGroup * 128;
  // Whether some row does not see all of a tile.
  const int all_see = work.tile.kv_len - work.tile.rows;
  const auto edge = [&](int tile) {
    return (tile + 1) * kTileKeys - 1 > all_see ||
           (window > 0 && tile * kTileKeys < work.tile.kv_len - window);
  };
  float s[kTileKeys / 2], o[kDim / 2];
  uint32_t weights[kTileKeys / 16][4];
#pragma unroll
  for (float& x : o) x = 0;
  if (group == 1) named_arrive(kTurnBarrier, kThreads - kGroupThreads);
  Ring keys, values;

  named_sync(kTurnBarrier + group, kThreads - kGroupThreads);
  barrier_wait(shared_address(&shared.k_full[keys.stage]), keys.phase);
  products_begin();
  multiply_keys<kDim>(s, q, shared_address(shared.k[keys.stage]));
  products_commit();
  named_arrive(kTurnBarrier + other, kThreads - kGroupThreads);
  products_wait<0>();
  settle(s);
  if (thread == 0) barrier_arrive(shared_address(&shared.k_empty[keys.stage]));
  keys.advance();
  softmax.step(s, p.scale_log2, (work.end - 1) * kTileKeys, edge(work.end - 1), window);
  pack(weights, s);
  const int tail = work.tile.kv_len - (work.end - 1) * kTileKeys;
  if (tail < kTileKeys) {
    barrier_wait(shared_address(&shared.v_full[0]), 0);
    clear_tail<kDim>(group, tail, shared.v[0]);
  }

  for (int tile = work.end - 2; tile >= work.first; --tile) {
    named_sync(kTurnBarrier + group, kThreads - kGroupThreads);
    barrier_wait(shared_address(&shared.k_full[keys.stage]), keys.phase);
    products_begin();
    multiply_keys<kDim>(s, q, shared_address(shared.k[keys.stage]));
    products_commit();
    barrier_wait(shared_address(&shared.v_full[values.stage]), values.phase);
    multiply_values<kDim>(o, weights, shared_address(shared.v[values.stage]));
    products_commit();
    named_arrive(kTurnBarrier + other, kThreads - kGroupThreads);
    products_wait<1>();
    settle(s);
    if (thread == 0) barrier_arrive(shared_address(&shared.k_empty[keys.stage]));
    keys.advance();
    softmax.step(s, p.scale_log2, tile * kTileKeys, edge(tile), window);
    products_wait<0>();
    settle(o);
    settle(weights);
    if (thread == 0) barrier_arrive(shared_address(&shared.v_empty[values.stage]));
    values.advance();
    pack(weights, s);
#pragma unroll
    for (int i = 0; i < kDim / 2; ++i) o[i] *= softmax.keep[i / 2 % 2];
  }
  barrier_wait(shared_address(&shared.v_full[values.stage]), values.phase);
  products_begin();
  multiply_values<kDim>(o, weights, shared_address(shared.v[values.stage]));
  products_commit();
  products_wait<0>();
  settle(o);
  if (group == 0) named_sync(kTurnBarrier, kThreads - kGroupThreads);  // the turn left over
  write_rows<kDim>(p, work, group, shared.q, o, softmax);
}

template <int kDim>
__global__ void __launch_bounds__(kThreads, 1)
    prefill_kernel(const __grid_constant__ PrefillArgs p, const __grid_constant__ CUtensorMap k,
                   const __grid_constant__ CUtensorMap v) {
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared<kDim>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(shared_address(&shared.k_full[i]), 1);
      barrier_init(shared_address(&shared.v_full[i]), 1);
      barrier_init(shared_address(&shared.k_empty[i]), kGroups);
      barrier_init(shared_address(&shared.v_empty[i]), kGroups);
    }
    barrier_init_done();
    prefetch_map(&k);
    prefetch_map(&v);
  }
  __syncthreads();
  if (!p.beside) wait_for_previous();
  let_next_start();
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  if (group == kGroups) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x < kGroups * kGroupThreads + 32) {
      copy_tiles<kDim>(p, Work(p, kKeys<kDim>), k, v, shared);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    attend<kDim>(p, Work(p, kKeys<kDim>), group, shared);
  }
  if (p.beside) wait_for_previous();
}

template <int kDim>
void start(const PrefillArgs& p, const CUtensorMap& k, const CUtensorMap& v, cudaStream_t stream) {
  const Launch how = {.grid = dim3(static_cast<unsigned>(p.count * p.args.cache.kv_heads)),
                      .block = dim3(kThreads),
                      .shared = sizeof(Shared<kDim>),
                      .stream = stream};
  allow_shared(prefill_kernel<kDim>, how.shared);
  launch(prefill_kernel<kDim>, how, p, k, v);
}

}  // namespace

void start_prefill(const PrefillArgs& p, const CUtensorMap& k, const CUtensorMap& v,
                   cudaStream_t stream) {
  if (p.args.head_dim == 64) start<64>(p, k, v, stream);
  if (p.args.head_dim == 128) start<128>(p, k, v, stream);
  if (p.args.head_dim == 256) start<256>(p, k, v, stream);
}

}  // namespace skiff::cuda

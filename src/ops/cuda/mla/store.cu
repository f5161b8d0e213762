// The first block of a row normalizes the latent, rotates the key and stores both. Each of the
// others rotates some heads of the query.
#include <cuda_fp8.h>

#include <cmath>

#include "base/check.h"
#include "ops/cuda/attention/paging.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/mla/args_of.h"
#include "ops/cuda/mla/store.h"
#include "ops/cuda/vector.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;

struct LatentStoreArgs {
  Rows rows;
  LatentCache cache;
  void* q;
  const float *kv, *norm, *speeds;
  int64_t q_stride, kv_stride;  // elements
  int heads, nope, rank, rope;
  int heads_of_block;
  float eps, gain;
  bool interleaved;
};

// What a thread turns: one pair of elements of every vector that it gets.
struct Turn {
  int a, b;  // the pair's elements
  float cosine, sine;
  __device__ Turn(const LatentStoreArgs& p, int pair, float angle)
      : a(p.interleaved ? 2 * pair : pair), b(p.interleaved ? a + 1 : a + p.rope / 2) {
    sincosf(angle, &sine, &cosine);
    sine *= p.gain, cosine *= p.gain;
  }
  __device__ float first(float x, float y) const { return fmaf(x, cosine, -(y * sine)); }
  __device__ float second(float x, float y) const { return fmaf(y, cosine, x * sine); }
};
static_assert(kMaxLatentRope / 2 <= kThreads);

constexpr int kMaxGroups = kMaxLatentRank / kLatentGroup;
static_assert(kThreads == kLatentGroup);  // a thread has one element of each group

// The least power of two that is not below amax / 448, within the bounds of ops/latent_row.h.
__device__ float scale_for(float amax) {
  const float least = fminf(fmaxf(__fdiv_rn(amax, 448), 0x1p-64f), 0x1p7f);
  return __uint_as_float((__float_as_uint(least) + 0x7fffff) & 0xff800000);
}

// 1 / x of a power of two, which is exact.
__device__ float inverse_of(float x) { return __uint_as_float(0x7f000000 - __float_as_uint(x)); }

// The sum over the block's threads, in every thread, in a fixed order.
__device__ float block_sum(float x, float* shared) {
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += shared[w];
  return sum;
}

// A latent, normalized: elements threadIdx.x, threadIdx.x + kThreads, ...; zeros beyond the rank.
using Latent = float[kMaxGroups];

// Stores latents that are floats.
template <class C>
__device__ void put_latent(const LatentStoreArgs& p, const Latent& x, C* to) {
#pragma unroll
  for (int g = 0; g < kMaxGroups; ++g)
    if (const int d = g * kThreads + static_cast<int>(threadIdx.x); d < p.rank)
      to[d] = from_float<C>(x[g]);
}

// Stores latents in 8 bits, with their scales; what pads a row becomes zero.
__device__ void put_latent(const LatentStoreArgs& p, const Latent& x, uint8_t* to) {
  __shared__ float tops[kMaxGroups][kWarps];
  const int tid = static_cast<int>(threadIdx.x), groups = (p.rank + kThreads - 1) / kThreads;
#pragma unroll
  for (int g = 0; g < kMaxGroups; ++g) {
    if (g >= groups) break;
    const float top = warp_max(fmaxf(0, fabsf(x[g])));
    if (tid % 32 == 0) tops[g][tid / 32] = top;
  }
  __syncthreads();
  // A lane makes the scale of a group.
  const int mine = min(tid % 32, groups - 1);
  float top = tops[mine][0];
  for (int w = 1; w < kWarps; ++w) top = fmaxf(top, tops[mine][w]);
  const float scale = scale_for(top), inverse = inverse_of(scale);
  if (tid < groups) *reinterpret_cast<float*>(to + p.cache.scales_at + tid * 4) = scale;
#pragma unroll
  for (int g = 0; g < kMaxGroups; ++g) {
    if (g >= groups) break;
    const float scaled = x[g] * __shfl_sync(kAllLanes, inverse, g);
    if (const int d = g * kThreads + tid; d < p.rank)
      to[d] = __nv_cvt_float_to_fp8(fminf(fmaxf(scaled, -448), 448), __NV_SATFINITE, __NV_E4M3);
  }
#pragma unroll 1
  for (int i = p.rank + tid; i < p.cache.scales_at; i += kThreads) to[i] = 0;
#pragma unroll 1
  for (int i = p.cache.rope_at + 2 * p.rope + tid; i < p.cache.vector_bytes; i += kThreads)
    to[i] = 0;
}

// Where the rotated key begins in a cached vector.
template <class C>
__device__ C* rope_of(const LatentStoreArgs& p, C* vector) {
  return vector + p.rank;
}
__device__ __nv_bfloat16* rope_of(const LatentStoreArgs& p, uint8_t* row) {
  return reinterpret_cast<__nv_bfloat16*>(row + p.cache.rope_at);
}

template <class C>
__device__ void store_latent(const LatentStoreArgs& p, int row, C* to, const Turn& turn) {
  __shared__ float sums[kWarps];
  const int tid = static_cast<int>(threadIdx.x);
  const float* from = p.kv + row * p.kv_stride;
  Latent x, norm;
  const auto load = [&](Latent& to, const float* from) {
#pragma unroll
    for (int g = 0; g < kMaxGroups; ++g)
      to[g] = g * kThreads + tid < p.rank ? from[g * kThreads + tid] : 0;
  };
  load(norm, p.norm);
  wait_for_previous();
  load(x, from);
  const bool turns = tid < p.rope / 2;
  const float a = turns ? from[p.rank + turn.a] : 0, b = turns ? from[p.rank + turn.b] : 0;
  float squares = 0;
#pragma unroll
  for (int g = 0; g < kMaxGroups; ++g) squares += x[g] * x[g];
  const float scale = 1 / sqrtf(block_sum(squares, sums) / static_cast<float>(p.rank) + p.eps);
#pragma unroll
  for (int g = 0; g < kMaxGroups; ++g) x[g] = x[g] * scale * norm[g];
  put_latent(p, x, to);
  if (!turns) return;
  put(rope_of(p, to) + turn.a, turn.first(a, b));
  put(rope_of(p, to) + turn.b, turn.second(a, b));
}

// Rotates heads [first, first + heads_of_block) of a row. A thread loads some before it stores
// them, for each would wait for memory again.
template <class T>
__device__ void rotate_heads(const LatentStoreArgs& p, int row, int first, const Turn& turn) {
  constexpr int kAhead = 4;
  const int half = p.rope / 2, tid = static_cast<int>(threadIdx.x), step = kThreads / half;
  const int end = tid < step * half ? min(p.heads, first + p.heads_of_block) : 0;
  T* q = static_cast<T*>(p.q) + row * p.q_stride + p.nope;
  wait_for_previous();
  for (int base = first + tid / half; base < end; base += kAhead * step) {
    float a[kAhead], b[kAhead];
    const auto for_heads = [&](auto f) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        if (const int h = base + i * step; h < end) f(i, q + int64_t{h} * (p.nope + p.rope));
    };
    for_heads([&](int i, const T* head) {
      a[i] = to_float(head[turn.a]), b[i] = to_float(head[turn.b]);
    });
    for_heads([&](int i, T* head) {
      head[turn.a] = from_float<T>(turn.first(a[i], b[i]));
      head[turn.b] = from_float<T>(turn.second(a[i], b[i]));
    });
  }
}

// C: float, bf16, or uint8_t for rows of ops/latent_row.h. All that the projections before do not
// write is there before the wait: weights, and the batch's arrays, which deliver() has written
// (launch.cuh).
template <class T, class C>
__global__ void __launch_bounds__(kThreads) latent_store_kernel(const LatentStoreArgs p) {
  const int row = static_cast<int>(blockIdx.x);
  let_next_start();
  const int pair = static_cast<int>(threadIdx.x) % (p.rope / 2);
  const float speed = p.speeds[pair];
  const int position = __ldcg(p.rows.positions + row);
  const int seq = sequence_of(p.rows, row);
  if (seq == p.rows.num_seqs) return wait_for_previous();
  const Turn turn(p, pair, __fmul_rn(static_cast<float>(position), speed));
  if (blockIdx.y > 0)
    return rotate_heads<T>(p, row, (static_cast<int>(blockIdx.y) - 1) * p.heads_of_block, turn);
  const int64_t page = page_of(p.rows, seq, position, p.cache.page_size);
  std::byte* to = p.cache.data + page * p.cache.page_bytes +
                  int64_t{position % p.cache.page_size} * p.cache.vector_bytes;
  store_latent(p, row, reinterpret_cast<C*>(to), turn);
}

template <class T>
void start(const LatentStoreArgs& args, const Launch& how) {
  switch (args.cache.element) {
    case LatentElement::kF32:
      return launch(latent_store_kernel<T, float>, how, args);
    case LatentElement::kBF16:
      return launch(latent_store_kernel<T, __nv_bfloat16>, how, args);
    case LatentElement::kRow:
      return launch(latent_store_kernel<T, uint8_t>, how, args);
  }
}

// With few rows, a thread has one pair of elements at a time; with many, sines are computed for
// more heads.
int heads_of_block(int64_t rows) { return rows <= 32 ? 4 : rows <= 128 ? 16 : 32; }

}  // namespace

void mla_store(const Tensor& q, const Tensor& kv, const Norm& norm, const Mla& spec,
               const RaggedBatch& batch, const KvLayer& cache, const float* speeds,
               cudaStream_t stream) {
  SKIFF_CHECK_EQ(q.cols(), static_cast<int64_t>(spec.heads) * spec.q_dim());
  SKIFF_CHECK_EQ(kv.cols(), spec.cached_dim());
  SKIFF_CHECK(kv.dtype == DType::kF32, "latents of {}", name(kv.dtype));
  SKIFF_CHECK(spec.rope_dim > 0 && spec.rope_dim % 2 == 0 && spec.rope_dim <= kMaxLatentRope,
              "rope_dim is {}", spec.rope_dim);
  SKIFF_CHECK(spec.kv_rank <= kMaxLatentRank,
              "latents of {} elements; the CUDA backend takes up to {}", spec.kv_rank,
              kMaxLatentRank);
  if (batch.num_tokens == 0) return;
  const LatentStoreArgs args = {.rows = rows_of(batch),
                                .cache = latent_cache_of(cache, spec),
                                .q = q.data,
                                .kv = kv.as<float>(),
                                .norm = norm.weight.as<float>(),
                                .speeds = speeds,
                                .q_stride = q.row_stride,
                                .kv_stride = kv.row_stride,
                                .heads = spec.heads,
                                .nope = spec.nope_dim,
                                .rank = spec.kv_rank,
                                .rope = spec.rope_dim,
                                .heads_of_block = heads_of_block(batch.num_tokens),
                                .eps = norm.eps,
                                .gain = rope_gain(spec.rope),
                                .interleaved = spec.rope.interleaved};
  const int parts = 1 + (spec.heads + args.heads_of_block - 1) / args.heads_of_block;
  const Launch how = {
      .grid = dim3(static_cast<unsigned>(batch.num_tokens), static_cast<unsigned>(parts)),
      .block = dim3(kThreads),
      .stream = stream};
  is_bf16(q) ? start<__nv_bfloat16>(args, how) : start<float>(args, how);
}

}  // namespace skiff::cuda

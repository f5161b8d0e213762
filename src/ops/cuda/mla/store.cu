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

// The elements of pair `i`.
struct PairAt {
  int a, b;
  __device__ PairAt(int i, int rope, bool interleaved)
      : a(interleaved ? 2 * i : i), b(interleaved ? 2 * i + 1 : i + rope / 2) {}
};

constexpr int kMaxGroups = kMaxLatentRank / kLatentGroup;
static_assert(kThreads == kLatentGroup);  // a thread has one element of each group

// The least power of two that is not below amax / 448, within the bounds of ops/latent_row.h.
__device__ float scale_for(float amax) {
  const float least = fminf(fmaxf(__fdiv_rn(amax, 448), 0x1p-64f), 0x1p7f);
  return __uint_as_float((__float_as_uint(least) + 0x7fffff) & 0xff800000);
}

// The sum over the block's threads, in every thread, in a fixed order.
__device__ float block_sum(float x, float* shared) {
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += shared[w];
  return sum;
}

// Stores latents that are floats.
template <class C>
__device__ void put_latent(const LatentStoreArgs& p, const float* from, float scale, C* to) {
  for (int d = static_cast<int>(threadIdx.x); d < p.rank; d += kThreads)
    to[d] = from_float<C>(from[d] * scale * p.norm[d]);
}

// Stores latents in 8 bits, with their scales; what pads a row becomes zero.
__device__ void put_latent(const LatentStoreArgs& p, const float* from, float scale, uint8_t* to) {
  __shared__ float tops[kMaxGroups][kWarps];
  const int tid = static_cast<int>(threadIdx.x), groups = (p.rank + kThreads - 1) / kThreads;
  const auto value = [&](int d) { return d < p.rank ? from[d] * scale * p.norm[d] : 0.0f; };
  for (int g = 0; g < groups; ++g) {
    const float top = warp_max(fmaxf(0, fabsf(value(g * kThreads + tid))));
    if (tid % 32 == 0) tops[g][tid / 32] = top;
  }
  __syncthreads();
  for (int g = 0; g < groups; ++g) {
    float top = tops[g][0];
    for (int w = 1; w < kWarps; ++w) top = fmaxf(top, tops[g][w]);
    const float divisor = scale_for(top);
    const int d = g * kThreads + tid;
    const float x = fminf(fmaxf(__fdiv_rn(value(d), divisor), -448), 448);
    if (d < p.rank) to[d] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
    if (tid == 0) *reinterpret_cast<float*>(to + p.cache.scales_at + g * 4) = divisor;
  }
  for (int i = p.rank + tid; i < p.cache.scales_at; i += kThreads) to[i] = 0;
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
__device__ void store_latent(const LatentStoreArgs& p, int row, C* to, const float* cosine,
                             const float* sine) {
  __shared__ float sums[kWarps];
  const int tid = static_cast<int>(threadIdx.x);
  const float* from = p.kv + row * p.kv_stride;
  float squares = 0;
  for (int d = tid; d < p.rank; d += kThreads) squares += from[d] * from[d];
  const float mean = block_sum(squares, sums) / static_cast<float>(p.rank);
  put_latent(p, from, 1 / sqrtf(mean + p.eps), to);
  auto* rope = rope_of(p, to);
  for (int i = tid; i < p.rope / 2; i += kThreads) {
    const PairAt at(i, p.rope, p.interleaved);
    const float a = from[p.rank + at.a], b = from[p.rank + at.b];
    put(rope + at.a, a * cosine[i] - b * sine[i]);
    put(rope + at.b, b * cosine[i] + a * sine[i]);
  }
}

// Rotates heads [first, first + heads_of_block) of a row.
template <class T>
__device__ void rotate_heads(const LatentStoreArgs& p, int row, int first, const float* cosine,
                             const float* sine) {
  const int half = p.rope / 2, heads = min(p.heads_of_block, p.heads - first);
  T* q = static_cast<T*>(p.q) + row * p.q_stride;
  for (int n = static_cast<int>(threadIdx.x); n < heads * half; n += kThreads) {
    const int i = n % half;
    T* head = q + int64_t{first + n / half} * (p.nope + p.rope) + p.nope;
    const PairAt at(i, p.rope, p.interleaved);
    const float a = to_float(head[at.a]), b = to_float(head[at.b]);
    head[at.a] = from_float<T>(a * cosine[i] - b * sine[i]);
    head[at.b] = from_float<T>(b * cosine[i] + a * sine[i]);
  }
}

// C: float, bf16, or uint8_t for rows of ops/latent_row.h.
template <class T, class C>
__global__ void __launch_bounds__(kThreads) latent_store_kernel(const LatentStoreArgs p) {
  __shared__ float cosine[kMaxLatentRope / 2], sine[kMaxLatentRope / 2];
  const int row = static_cast<int>(blockIdx.x), tid = static_cast<int>(threadIdx.x);
  // The next kernel starts after this wait, so that it sees without one what lies before this
  // kernel: the plan and the page table.
  wait_for_previous();
  let_next_start();
  const int seq = sequence_of(p.rows, row);
  if (seq == p.rows.num_seqs) return;
  const int position = p.rows.positions[row];
  for (int i = tid; i < p.rope / 2; i += kThreads) {
    float s, c;
    sincosf(__fmul_rn(static_cast<float>(position), p.speeds[i]), &s, &c);
    sine[i] = s * p.gain, cosine[i] = c * p.gain;
  }
  __syncthreads();
  if (blockIdx.y > 0) {
    rotate_heads<T>(p, row, (static_cast<int>(blockIdx.y) - 1) * p.heads_of_block, cosine, sine);
    return;
  }
  const int64_t page = p.rows.pages[seq * p.rows.pages_stride + position / p.cache.page_size];
  std::byte* to = p.cache.data + page * p.cache.page_bytes +
                  int64_t{position % p.cache.page_size} * p.cache.vector_bytes;
  store_latent(p, row, reinterpret_cast<C*>(to), cosine, sine);
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

// With few rows, a thread has one pair of elements: each further one would wait for memory again.
int heads_of_block(int64_t rows) { return rows <= 32 ? 4 : rows <= 256 ? 8 : 32; }

}  // namespace

void mla_store(const Tensor& q, const Tensor& kv, const Norm& norm, const Mla& spec,
               const RaggedBatch& batch, const KvLayer& cache, const float* speeds,
               cudaStream_t stream) {
  SKIFF_CHECK_EQ(q.cols(), static_cast<int64_t>(spec.heads) * spec.q_dim());
  SKIFF_CHECK_EQ(kv.cols(), spec.cached_dim());
  SKIFF_CHECK(kv.dtype == DType::kF32, "latents of {}", name(kv.dtype));
  SKIFF_CHECK(spec.rope_dim % 2 == 0 && spec.rope_dim <= kMaxLatentRope, "rope_dim is {}",
              spec.rope_dim);
  SKIFF_CHECK(latent_element(cache) != LatentElement::kRow || spec.kv_rank <= kMaxLatentRank,
              "rows of {} elements; the CUDA backend takes up to {}", spec.kv_rank, kMaxLatentRank);
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

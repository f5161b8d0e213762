// A block of threads for each row and kHeads of its heads, which it rotates; the first block of a
// row also normalizes its latent, rotates its key and stores both.
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
constexpr int kHeads = 32;  // heads that a block rotates

struct LatentStoreArgs {
  Rows rows;
  LatentCache cache;
  void* q;
  const float *kv, *norm, *speeds;
  int64_t q_stride, kv_stride;  // elements
  int heads, nope, rank, rope;
  float eps, gain;
  bool interleaved;
};

// The elements of pair `i`.
struct PairAt {
  int a, b;
  __device__ PairAt(int i, int rope, bool interleaved)
      : a(interleaved ? 2 * i : i), b(interleaved ? 2 * i + 1 : i + rope / 2) {}
};

// The sum over the block's threads, in every thread, in a fixed order.
__device__ float block_sum(float x, float* shared) {
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += shared[w];
  return sum;
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
  const float scale = 1 / sqrtf(mean + p.eps);
  for (int d = tid; d < p.rank; d += kThreads) to[d] = from_float<C>(from[d] * scale * p.norm[d]);
  for (int i = tid; i < p.rope / 2; i += kThreads) {
    const PairAt at(i, p.rope, p.interleaved);
    const float a = from[p.rank + at.a], b = from[p.rank + at.b];
    to[p.rank + at.a] = from_float<C>(a * cosine[i] - b * sine[i]);
    to[p.rank + at.b] = from_float<C>(b * cosine[i] + a * sine[i]);
  }
}

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
  const int first = static_cast<int>(blockIdx.y) * kHeads, half = p.rope / 2;
  const int heads = min(kHeads, p.heads - first);
  T* q = static_cast<T*>(p.q) + row * p.q_stride;
  for (int n = tid; n < heads * half; n += kThreads) {
    const int i = n % half;
    T* head = q + int64_t{first + n / half} * (p.nope + p.rope) + p.nope;
    const PairAt at(i, p.rope, p.interleaved);
    const float a = to_float(head[at.a]), b = to_float(head[at.b]);
    head[at.a] = from_float<T>(a * cosine[i] - b * sine[i]);
    head[at.b] = from_float<T>(b * cosine[i] + a * sine[i]);
  }
  if (blockIdx.y > 0) return;
  const int64_t page = p.rows.pages[seq * p.rows.pages_stride + position / p.cache.page_size];
  C* to = static_cast<C*>(p.cache.data) + page * p.cache.page_stride +
          int64_t{position % p.cache.page_size} * (p.rank + p.rope);
  store_latent(p, row, to, cosine, sine);
}

}  // namespace

void mla_store(const Tensor& q, const Tensor& kv, const Norm& norm, const Mla& spec,
               const RaggedBatch& batch, const KvLayer& cache, const float* speeds,
               cudaStream_t stream) {
  SKIFF_CHECK_EQ(q.cols(), static_cast<int64_t>(spec.heads) * spec.q_dim());
  SKIFF_CHECK_EQ(kv.cols(), spec.cached_dim());
  SKIFF_CHECK(kv.dtype == DType::kF32, "latents of {}", name(kv.dtype));
  SKIFF_CHECK(spec.rope_dim % 2 == 0 && spec.rope_dim <= kMaxLatentRope, "rope_dim is {}",
              spec.rope_dim);
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
                                .eps = norm.eps,
                                .gain = rope_gain(spec.rope),
                                .interleaved = spec.rope.interleaved};
  const Launch how = {.grid = dim3(static_cast<unsigned>(batch.num_tokens),
                                   static_cast<unsigned>((spec.heads + kHeads - 1) / kHeads)),
                      .block = dim3(kThreads),
                      .stream = stream};
  if (is_bf16(q))
    args.cache.bf16 ? launch(latent_store_kernel<__nv_bfloat16, __nv_bfloat16>, how, args)
                    : launch(latent_store_kernel<__nv_bfloat16, float>, how, args);
  else
    args.cache.bf16 ? launch(latent_store_kernel<float, __nv_bfloat16>, how, args)
                    : launch(latent_store_kernel<float, float>, how, args);
}

}  // namespace skiff::cuda

// Latent attention without tensor cores: a block for each query vector. Its warps take blocks of 32
// positions in turn, cut at absolute positions; a lane owns one cached vector for the scores and a
// stripe of its elements for the mean. Online softmax: Milakov and Gimelshein 2018.
#include <cmath>

#include "ops/cuda/attention/paging.cuh"
#include "ops/cuda/attention/quantized.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/mla/attend_kernels.h"
#include "ops/cuda/vector.cuh"
#include "ops/cuda/warp.cuh"
#include "ops/latent_row.h"

namespace skiff::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;

// The elements of a cached vector, of floats or of a row of ops/latent_row.h.
template <class C>
struct Floats {
  const C* at;
  __device__ Floats(const LatentArgs&, const std::byte* vector)
      : at(reinterpret_cast<const C*>(vector)) {}
  __device__ float operator[](int d) const { return to_float(at[d]); }
};
struct Row {
  const uint8_t* at;
  int rank, scales_at, rope_at;
  __device__ Row(const LatentArgs& p, const std::byte* vector)
      : at(reinterpret_cast<const uint8_t*>(vector)),
        rank(p.rank),
        scales_at(p.cache.scales_at),
        rope_at(p.cache.rope_at) {}
  __device__ float operator[](int d) const {
    if (d >= rank) return to_float(reinterpret_cast<const __nv_bfloat16*>(at + rope_at)[d - rank]);
    const uint8_t* scale = at + scales_at + d / kLatentGroup * 4;
    // A float that is a power of two is bf16 in its upper half.
    return value_at<KvElement::kE4M3>(at, reinterpret_cast<const uint16_t*>(scale) + 1, d);
  }
};

template <class C>
__device__ float dot(const float* q, const C& k, int n) {
  float sum = 0;
  for (int d = 0; d < n; ++d) sum += q[d] * k[d];
  return sum;
}

template <class T, class C, int kStripes>
__global__ void __launch_bounds__(kThreads) latent_generic_kernel(const LatentArgs p) {
  __shared__ float query[kMaxLatentRank + kMaxLatentRope];
  __shared__ float part[kWarps][kStripes * 32], part_top[kWarps], part_sum[kWarps];
  wait_for_previous();
  let_next_start();
  const int row = static_cast<int>(blockIdx.x);
  const int64_t vector = int64_t{row} * p.heads + blockIdx.y;
  const int tid = static_cast<int>(threadIdx.x), warp = tid / 32, lane = tid % 32;
  T* out = static_cast<T*>(p.out) + vector * p.out_stride;
  const int seq = sequence_of(p.rows, row);
  if (seq == p.rows.num_seqs) {
    for (int d = tid; d < p.rank; d += kThreads) out[d] = from_float<T>(0);
    return;
  }
  const int cols = p.rank + p.rope;
  const T* latent = static_cast<const T*>(p.q_latent) + vector * p.latent_stride;
  const T* rope = static_cast<const T*>(p.q_rope) + vector * p.rope_stride;
  for (int d = tid; d < cols; d += kThreads)
    query[d] = to_float(d < p.rank ? latent[d] : rope[d - p.rank]);
  __syncthreads();

  const int position = p.rows.positions[row], page_size = p.cache.page_size;
  const int32_t* pages = p.rows.pages + seq * p.rows.pages_stride;
  const auto cached = [&](int t) {
    return p.cache.data + pages[t / page_size] * p.cache.page_bytes +
           int64_t{t % page_size} * p.cache.vector_bytes;
  };
  float top = -INFINITY, sum = 0, values[kStripes] = {};
  for (int block = warp; block <= position / 32; block += kWarps) {
    const int t = block * 32 + lane;
    const bool seen = t <= position;
    const std::byte* mine = cached(seen ? t : 0);
    const float score = seen ? dot(query, C(p, mine), cols) * p.scale : -INFINITY;
    const float new_top = fmaxf(top, warp_max(score));
    const float weight = seen ? expf(score - new_top) : 0.0f, keep = expf(top - new_top);
    top = new_top;
    sum = sum * keep + warp_sum(weight);
#pragma unroll
    for (int i = 0; i < kStripes; ++i) values[i] *= keep;
    for (int j = 0; j < 32; ++j) {
      const float w = __shfl_sync(kAllLanes, weight, j);
      const C v(p, reinterpret_cast<const std::byte*>(
                       __shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(mine), j)));
      if (w == 0) continue;
#pragma unroll
      for (int i = 0; i < kStripes; ++i) {
        if (i * 32 + lane < p.rank) values[i] += w * v[i * 32 + lane];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kStripes; ++i) part[warp][i * 32 + lane] = values[i];
  if (lane == 0) {
    part_top[warp] = top;
    part_sum[warp] = sum;
  }
  __syncthreads();
  float all_top = part_top[0], all_sum = 0, keep[kWarps];
  for (int w = 1; w < kWarps; ++w) all_top = fmaxf(all_top, part_top[w]);
  for (int w = 0; w < kWarps; ++w) {
    keep[w] = expf(part_top[w] - all_top);
    all_sum += part_sum[w] * keep[w];
  }
  for (int d = tid; d < p.rank; d += kThreads) {
    float x = 0;
    for (int w = 0; w < kWarps; ++w) x += part[w][d] * keep[w];
    out[d] = from_float<T>(x / all_sum);
  }
}

template <class T, class C>
void start(const LatentArgs& p, const Launch& how) {
  if (p.rank <= 128)
    launch(latent_generic_kernel<T, C, 4>, how, p);
  else if (p.rank <= 512)
    launch(latent_generic_kernel<T, C, 16>, how, p);
  else
    launch(latent_generic_kernel<T, C, kMaxLatentRank / 32>, how, p);
}

template <class T>
void start(const LatentArgs& p, const Launch& how) {
  switch (p.cache.element) {
    case LatentElement::kF32:
      return start<T, Floats<float>>(p, how);
    case LatentElement::kBF16:
      return start<T, Floats<__nv_bfloat16>>(p, how);
    case LatentElement::kRow:
      return start<T, Row>(p, how);
  }
}

}  // namespace

void start_latent_generic(const LatentArgs& p, cudaStream_t stream) {
  const Launch how = {
      .grid = dim3(static_cast<unsigned>(p.rows.num_tokens), static_cast<unsigned>(p.heads)),
      .block = dim3(kThreads),
      .stream = stream};
  p.bf16 ? start<__nv_bfloat16>(p, how) : start<float>(p, how);
}

}  // namespace skiff::cuda

// Attention without tensor cores. There is one thread block per row and head. Its warps take blocks
// of 32 positions in turn, cut at absolute positions; a lane owns one key for the scores and a
// stripe of dimensions for the values. Online softmax: Milakov and Gimelshein 2018.
#include <cmath>
#include <type_traits>

#include "ops/cuda/attention/attend_kernels.h"
#include "ops/cuda/attention/paging.cuh"
#include "ops/cuda/attention/quantized.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/vector.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kMaxHead = 256;

template <int N, class C>
__device__ float dot_by(const float* q, const C* k, int dim) {
  float sum = 0;
  for (int d = 0; d < dim; d += N) {
    const auto part = *reinterpret_cast<const Pack<C, N>*>(k + d);
#pragma unroll
    for (int i = 0; i < N; ++i) sum += q[d + i] * to_float(part.at[i]);
  }
  return sum;
}

template <class C>
__device__ float dot(const float* q, const C* k, int dim) {
  return dim % 8 == 0 ? dot_by<8>(q, k, dim) : dot_by<2>(q, k, dim);
}

// Where the keys (or values) of one head of a position begin.
template <class C>
struct Place {
  const C* elements;
  __device__ float dot_with(const float* q, int dim) const { return dot(q, elements, dim); }
  __device__ float value(int d) const { return to_float(elements[d]); }
};
template <class C>
__device__ Place<C> key_place(const Cache<C>& c, int64_t page, int position, int head) {
  return {c.k + page * c.k_page + c.in_page(position, head)};
}
template <class C>
__device__ Place<C> value_place(const Cache<C>& c, int64_t page, int position, int head) {
  return {c.v + page * c.v_page + c.in_page(position, head)};
}

template <KvElement kElement>
struct QuantizedPlace {
  const uint8_t* elements;
  const uint16_t* scales;
  __device__ float dot_with(const float* q, int dim) const {
    float sum = 0;
    for (int d = 0; d < dim; ++d) sum += q[d] * value(d);
    return sum;
  }
  __device__ float value(int d) const { return value_at<kElement>(elements, scales, d); }
};
template <KvElement kElement>
__device__ QuantizedPlace<kElement> key_place(const QuantizedCache<kElement>& c, int64_t page,
                                              int position, int head) {
  return {c.k + page * c.k_page + c.in_page(position, head),
          c.k_scale + c.scale_at(page, c.k_scale_page, position, head)};
}
template <KvElement kElement>
__device__ QuantizedPlace<kElement> value_place(const QuantizedCache<kElement>& c, int64_t page,
                                                int position, int head) {
  return {c.v + page * c.v_page + c.in_page(position, head),
          c.v_scale + c.scale_at(page, c.v_scale_page, position, head)};
}

template <class P>
__device__ P from_lane(const P& place, int lane) {
  P out = place;
  out.elements = reinterpret_cast<decltype(out.elements)>(
      __shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(place.elements), lane));
  if constexpr (requires { out.scales; })
    out.scales = reinterpret_cast<const uint16_t*>(
        __shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(place.scales), lane));
  return out;
}

template <class T, class Kv>
__global__ void __launch_bounds__(kThreads) attend_kernel(const AttendArgs p, const Kv cache) {
  constexpr int kStripes = kMaxHead / 32;
  __shared__ float query[kMaxHead], part[kWarps][kMaxHead], part_max[kWarps], part_sum[kWarps];
  wait_for_previous();
  let_next_start();
  const int row = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int tid = static_cast<int>(threadIdx.x), warp = tid / 32, lane = tid % 32;
  const int dim = p.head_dim;
  T* out = static_cast<T*>(p.out) + row * p.out_stride + static_cast<int64_t>(head) * dim;
  const int seq = sequence_of(p.rows, row);
  if (seq == p.rows.num_seqs) {
    for (int d = tid; d < dim; d += kThreads) out[d] = from_float<T>(0);
    return;
  }
  for (int d = tid; d < dim; d += kThreads) {
    query[d] = to_float(
        static_cast<const T*>(p.q)[row * p.q_stride + static_cast<int64_t>(head) * dim + d]);
  }
  __syncthreads();

  const int position = p.rows.positions[row];
  const int first = p.window > 0 ? max(0, position - p.window + 1) : 0;
  const int32_t* pages = p.rows.pages + seq * p.rows.pages_stride;
  float top = -INFINITY, sum = 0, values[kStripes] = {};
  for (int block = first / 32 + warp; block <= position / 32; block += kWarps) {
    const int t = block * 32 + lane;
    const bool seen = t >= first && t <= position;
    const int64_t page = seen ? pages[t / cache.page_size] : 0;
    const float score =
        seen ? key_place(cache, page, t, head / p.group).dot_with(query, dim) * p.scale : -INFINITY;
    const float new_top = fmaxf(top, warp_max(score));
    const float weight = seen ? expf(score - new_top) : 0.0f, keep = expf(top - new_top);
    top = new_top;
    sum = sum * keep + warp_sum(weight);
#pragma unroll
    for (int i = 0; i < kStripes; ++i) values[i] *= keep;
    const auto values_at = value_place(cache, page, t, head / p.group);
    for (int j = 0; j < 32; ++j) {
      const float w = __shfl_sync(kAllLanes, weight, j);
      const auto v = from_lane(values_at, j);
      if (w == 0) continue;
#pragma unroll
      for (int i = 0; i < kStripes; ++i) {
        if (i * 32 + lane < dim) values[i] += w * v.value(i * 32 + lane);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kStripes; ++i) part[warp][i * 32 + lane] = values[i];
  if (lane == 0) {
    part_max[warp] = top;
    part_sum[warp] = sum;
  }
  __syncthreads();
  float all_top = part_max[0], all_sum = 0, keep[kWarps];
  for (int w = 1; w < kWarps; ++w) all_top = fmaxf(all_top, part_max[w]);
  for (int w = 0; w < kWarps; ++w) {
    keep[w] = expf(part_max[w] - all_top);
    all_sum += part_sum[w] * keep[w];
  }
  for (int d = tid; d < dim; d += kThreads) {
    float x = 0;
    for (int w = 0; w < kWarps; ++w) x += part[w][d] * keep[w];
    out[d] = from_float<T>(x / all_sum);
  }
}

}  // namespace

void start_generic(const AttendArgs& args, cudaStream_t stream) {
  const Launch how = {.grid = dim3(static_cast<unsigned>(args.rows.num_tokens),
                                   static_cast<unsigned>(args.group * args.cache.kv_heads)),
                      .block = dim3(kThreads),
                      .stream = stream};
  with_types(args.bf16, args.cache, [&](auto act, const auto& cache) {
    launch(attend_kernel<decltype(act), std::decay_t<decltype(cache)>>, how, args, cache);
  });
}

}  // namespace skiff::cuda

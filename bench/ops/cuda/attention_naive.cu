#include "attention_naive.h"

#include "ops/cuda/attention/paging.cuh"
#include "ops/cuda/attention/quantized.cuh"
#include "ops/cuda/check.h"
#include "ops/cuda/vector.cuh"

namespace skiff::bench {
namespace {

using namespace skiff::cuda;

template <class C>
__device__ double key_of(const Cache<C>& c, int64_t page, int t, int head, int d, bool) {
  return to_float(c.k[page * c.k_page + c.in_page(t, head) + d]);
}
template <class C>
__device__ double value_of(const Cache<C>& c, int64_t page, int t, int head, int d, bool) {
  return to_float(c.v[page * c.v_page + c.in_page(t, head) + d]);
}
// What an element stands for: rounded to bf16, or the product of its scale and a byte's number.
template <KvElement kElement>
__device__ double quantized_value(const uint8_t* elements, const uint16_t* scales, int d,
                                  bool exact) {
  if constexpr (kElement == KvElement::kE4M3) {
    const __half_raw element = __nv_cvt_fp8_to_halfraw(elements[d], __NV_E4M3);
    if (exact) return static_cast<double>(__half2float(__half(element))) * bf16_value(*scales);
  }
  if constexpr (kElement == KvElement::kI8) {
    if (exact) return static_cast<double>(static_cast<int8_t>(elements[d])) * bf16_value(*scales);
  }
  return value_at<kElement>(elements, scales, d);
}
template <KvElement kElement>
__device__ double key_of(const QuantizedCache<kElement>& c, int64_t page, int t, int head, int d,
                         bool exact) {
  return quantized_value<kElement>(c.k + page * c.k_page + c.in_page(t, head),
                                   c.k_scale + c.scale_at(page, c.k_scale_page, t, head), d, exact);
}
template <KvElement kElement>
__device__ double value_of(const QuantizedCache<kElement>& c, int64_t page, int t, int head, int d,
                           bool exact) {
  return quantized_value<kElement>(c.v + page * c.v_page + c.in_page(t, head),
                                   c.v_scale + c.scale_at(page, c.v_scale_page, t, head), d, exact);
}

template <class T, class Kv>
__global__ void naive(const AttendArgs p, const Kv cache, const NaiveRow* rows, int max_kv,
                      double* scores, double* value, double* size) {
  const NaiveRow at = rows[blockIdx.x];
  const int head = blockIdx.y, heads = gridDim.y, dim = p.head_dim, kv_head = head / p.group;
  const int64_t unit = static_cast<int64_t>(blockIdx.x) * heads + head;
  const T* q = static_cast<const T*>(p.q) + at.row * p.q_stride + head * dim;
  const int first = p.window > 0 ? max(0, at.position - p.window + 1) : 0;
  const int32_t* pages = p.rows.pages + at.seq * p.rows.pages_stride;
  double* s = scores + unit * max_kv;
  for (int t = first + threadIdx.x; t <= at.position; t += blockDim.x) {
    const int64_t page = pages[t / cache.page_size];
    double sum = 0;
    for (int d = 0; d < dim; ++d) {
      sum += static_cast<double>(to_float(q[d])) * key_of(cache, page, t, kv_head, d, at.exact);
    }
    s[t] = sum / sqrt(static_cast<double>(dim));
  }
  __syncthreads();
  __shared__ double tops[256];
  double best = -INFINITY;
  for (int t = first + threadIdx.x; t <= at.position; t += blockDim.x) best = fmax(best, s[t]);
  tops[threadIdx.x] = best;
  __syncthreads();
  for (int i = 0; i < blockDim.x; ++i) best = fmax(best, tops[i]);
  for (int t = first + threadIdx.x; t <= at.position; t += blockDim.x) s[t] = exp(s[t] - best);
  __syncthreads();
  for (int d = threadIdx.x; d < dim; d += blockDim.x) {
    double total = 0, absolute = 0, sum = 0;
    for (int t = first; t <= at.position; ++t) {
      const int64_t page = pages[t / cache.page_size];
      const double product = s[t] * value_of(cache, page, t, kv_head, d, at.exact);
      total += product;
      absolute += fabs(product);
      sum += s[t];
    }
    value[unit * dim + d] = total / sum;
    size[unit * dim + d] = absolute / sum;
  }
}

// The largest numbers take the place of NaN.
__global__ void drop_nan(uint8_t* codes, size_t n) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n;
       i += size_t{gridDim.x} * blockDim.x)
    if ((codes[i] & 0x7f) == 0x7f) codes[i] &= 0xfe;
}

template <class T>
__global__ void fill(T* data, size_t n, float scale, unsigned seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n;
       i += size_t{gridDim.x} * blockDim.x) {
    float sum = 0;
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull + seed * 0xd1b54a32d192ed03ull;
    for (int j = 0; j < 2; ++j) {
      x ^= x >> 30, x *= 0xbf58476d1ce4e5b9ull, x ^= x >> 27, x *= 0x94d049bb133111ebull;
      x ^= x >> 31;
      sum += static_cast<float>(x & 0xffffff) + static_cast<float>(x >> 40);
    }
    data[i] = from_float<T>((sum / 16777216.0f - 2) * 1.732f * scale);  // variance of four: 1/3
  }
}

}  // namespace

void naive_attend(const AttendArgs& args, const NaiveRow* rows, int n, int max_kv, double* scores,
                  double* value, double* size) {
  with_types(args.bf16, args.cache, [&](auto act, const auto& cache) {
    const dim3 grid(static_cast<unsigned>(n),
                    static_cast<unsigned>(args.group * args.cache.kv_heads));
    naive<decltype(act)><<<grid, 128>>>(args, cache, rows, max_kv, scores, value, size);
  });
  check(cudaDeviceSynchronize(), "running the naive kernel");
}

void drop_nan_codes(uint8_t* codes, size_t n) {
  drop_nan<<<1024, 256>>>(codes, n);
  check(cudaGetLastError(), "replacing codes of NaN");
}
void fill_random(void* data, size_t elements, bool bf16, float scale, unsigned seed) {
  if (bf16) {
    fill<<<1024, 256>>>(static_cast<__nv_bfloat16*>(data), elements, scale, seed);
  } else {
    fill<<<1024, 256>>>(static_cast<float*>(data), elements, scale, seed);
  }
  check(cudaGetLastError(), "filling with random values");
}

}  // namespace skiff::bench

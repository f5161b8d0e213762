#include "ops/cuda/quant/quantize.h"

#include "base/check.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/quant/codes.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 256;

struct Quantize {
  const void* plain;
  void *codes, *scales;
  DType from, to, scale_dtype;
  int64_t rows, in, scale_columns;
  int64_t block_out, block_in;  // the size of a block; the last ones may be partial
  QuantRule rule;
};

// The element of largest magnitude so far; of two with opposite signs the positive one.
struct Extreme {
  float size = 0, value = 0;

  __device__ void meet(float other_size, float other) {
    if (other_size < size || (other_size == size && other <= value)) return;
    size = other_size;
    value = other;
  }
};

// The extreme of all threads, in all of them.
__device__ Extreme of_block(Extreme mine) {
  __shared__ float sizes[kThreads / 32], values[kThreads / 32];
  for (int mask = 16; mask > 0; mask /= 2) {
    const float size = __shfl_xor_sync(kAllLanes, mine.size, mask);
    mine.meet(size, __shfl_xor_sync(kAllLanes, mine.value, mask));
  }
  __syncthreads();  // the sums of the block before have been read
  if (threadIdx.x % 32 == 0) {
    sizes[threadIdx.x / 32] = mine.size;
    values[threadIdx.x / 32] = mine.value;
  }
  __syncthreads();
  for (int w = 0; w < kThreads / 32; ++w) mine.meet(sizes[w], values[w]);
  return mine;
}

__device__ float rounded_to(float x, DType dtype) {
  if (dtype == DType::kF16) return __half2float(__float2half_rn(x));
  return dtype == DType::kBF16 ? __bfloat162float(__float2bfloat16_rn(x)) : x;
}
__device__ void put_scale(const Quantize& q, int64_t at, float scale) {
  if (q.scale_dtype == DType::kF32)
    static_cast<float*>(q.scales)[at] = scale;
  else if (q.scale_dtype == DType::kF16)
    static_cast<__half*>(q.scales)[at] = __float2half_rn(scale);
  else
    static_cast<__nv_bfloat16*>(q.scales)[at] = __float2bfloat16_rn(scale);
}

// The float32 scale of a block, before it is rounded to its dtype. __fdiv_rn is a true division
// whatever the compiler's options.
__device__ float scale_of(const Quantize& q, const Extreme& e) {
  const bool four = q.to == DType::kI4;
  switch (q.rule) {
    case QuantRule::kPaddle:
      return __fdiv_rn(e.size, four ? 7.0f : 127.0f);
    case QuantRule::kAbsMax:
      return __fdiv_rn(e.size, four ? 7.5f : 127.0f);
    case QuantRule::kSignedExtreme:
      return __fdiv_rn(e.value, -8.0f);
    case QuantRule::kFloat8:
      break;
  }
  return __fdiv_rn(e.size, 448.0f);
}

__device__ unsigned code_of(const Quantize& q, float x, float scale) {
  const float quotient = __fdiv_rn(x, scale);
  if (q.rule == QuantRule::kFloat8)
    return __nv_cvt_float_to_fp8(fminf(fmaxf(quotient, -448.0f), 448.0f), __NV_SATFINITE,
                                 __NV_E4M3);
  const bool four = q.to == DType::kI4, paddle = q.rule == QuantRule::kPaddle;
  const float most = four ? 7 : 127, least = four && !paddle ? -8 : -most;
  const float whole = paddle ? roundf(quotient) : rintf(quotient);
  return static_cast<unsigned>(static_cast<int>(fminf(fmaxf(whole, least), most)));
}

// A block of threads has a block of elements at a time. Where elements of two rows share a byte,
// rows must have an even number of elements; where two scale blocks do, block_in must be even.
__global__ void __launch_bounds__(kThreads) quantize_kernel(Quantize q) {
  const int64_t row_blocks = (q.rows + q.block_out - 1) / q.block_out;
  for (int64_t b = blockIdx.x; b < row_blocks * q.scale_columns; b += gridDim.x) {
    const int64_t first_row = b / q.scale_columns * q.block_out,
                  first = b % q.scale_columns * q.block_in;
    const int64_t rows = min(q.block_out, q.rows - first_row), wide = min(q.block_in, q.in - first);
    const auto at = [&](int64_t i) { return (first_row + i / wide) * q.in + first + i % wide; };
    Extreme mine;
    for (int64_t i = threadIdx.x; i < rows * wide; i += kThreads) {
      const float x = float_at(q.plain, q.from, at(i));
      mine.meet(fabsf(x), x);
    }
    float stored = scale_of(q, of_block(mine));
    const float rounded = rounded_to(stored, q.scale_dtype);
    const bool nothing = rounded == 0;
    float divisor = q.rule == QuantRule::kPaddle ? stored : rounded;
    if (nothing) stored = divisor = 1;
    if (threadIdx.x == 0) put_scale(q, b, stored);
    const auto code = [&](int64_t i) {
      return nothing ? 0 : code_of(q, float_at(q.plain, q.from, i), divisor);
    };
    if (q.to == DType::kI4) {
      for (int64_t i = 2 * threadIdx.x; i < rows * wide; i += 2 * kThreads) {
        const int64_t to = at(i);
        static_cast<uint8_t*>(q.codes)[to / 2] =
            static_cast<uint8_t>((code(to) & 15) | code(to + 1) << 4);
      }
    } else {
      for (int64_t i = threadIdx.x; i < rows * wide; i += kThreads)
        static_cast<uint8_t*>(q.codes)[at(i)] = static_cast<uint8_t>(code(at(i)));
    }
  }
}

bool rule_fits(const WeightFormat& f, QuantRule rule) {
  switch (rule) {
    case QuantRule::kPaddle:
    case QuantRule::kAbsMax:
      return f.dtype == DType::kI4 || f.dtype == DType::kI8;
    case QuantRule::kSignedExtreme:
      return f.dtype == DType::kI4;
    case QuantRule::kFloat8:
      return f.dtype == DType::kF8E4M3;
  }
  return false;
}

}  // namespace

void quantize(const Linear& q, const Tensor& plain, QuantRule rule, cudaStream_t stream) {
  const WeightFormat& f = q.format;
  SKIFF_CHECK(rule_fits(f, rule) && f.scale && !f.zero, "{} by rule {}", describe(f),
              static_cast<int>(rule));
  SKIFF_CHECK(plain.contiguous() && q.weight.contiguous() && q.scale.contiguous());
  if (plain.elements() == 0) return;
  const int64_t rows = plain.rows(), in = plain.cols();
  SKIFF_CHECK(f.dtype != DType::kI4 || (in % 2 == 0 && f.block_in % 2 == 0),
              "rows of {} four-bit elements, in blocks of {}", in, f.block_in);
  const int64_t block_out = f.block_out == 0 ? rows : f.block_out;
  const int64_t block_in = f.block_in == 0 ? in : f.block_in;
  const int64_t columns = (in + block_in - 1) / block_in;
  const int64_t blocks = (rows + block_out - 1) / block_out * columns;
  SKIFF_CHECK_EQ(q.scale.elements(), blocks);
  const Quantize args = {.plain = plain.data,
                         .codes = q.weight.data,
                         .scales = q.scale.data,
                         .from = plain.dtype,
                         .to = f.dtype,
                         .scale_dtype = q.scale.dtype,
                         .rows = rows,
                         .in = in,
                         .scale_columns = columns,
                         .block_out = block_out,
                         .block_in = block_in,
                         .rule = rule};
  constexpr int64_t kMostBlocks = 16384;
  quantize_kernel<<<static_cast<unsigned>(std::min(blocks, kMostBlocks)), kThreads, 0, stream>>>(
      args);
  check(cudaGetLastError(), "quantizing a weight");
}

}  // namespace skiff::cuda

#include <algorithm>

#include "ops/cpu/backend.h"
#include "ops/cpu/rows.h"
#include "tensor/convert.h"
#include "weights/codes.h"

namespace skiff::cpu {
namespace {

struct Extremes {
  float low = 0, high = 0;

  void include(const float* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      low = x[i] < low ? x[i] : low;
      high = x[i] > high ? x[i] : high;
    }
  }
};

// Divides by the block's scale, rounds, and stores the codes from element `at` on.
void store_codes(const Kernels& k, const Linear& q, QuantRule rule, float divisor, float* x,
                 int64_t at, int64_t n) {
  const DType dtype = q.format.dtype;
  if (rule == QuantRule::kFloat8) {
    k.round_e4m3(x, divisor, n);
    auto* codes = static_cast<uint8_t*>(q.weight.data) + at;
    for (int64_t i = 0; i < n; ++i) codes[i] = to_e4m3(x[i]);
    return;
  }
  const bool paddle = rule == QuantRule::kPaddle;
  const float high = dtype == DType::kI8 ? 127 : 7;
  const float low = dtype == DType::kI4 && !paddle ? -8 : -high;
  k.round_integers(x, divisor, low, high, paddle ? Ties::kAway : Ties::kEven, n);
  if (dtype == DType::kI8) {
    auto* codes = static_cast<int8_t*>(q.weight.data) + at;
    for (int64_t i = 0; i < n; ++i) codes[i] = static_cast<int8_t>(x[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    store_code(q.weight.data, dtype, at + i, static_cast<unsigned>(static_cast<int>(x[i])));
}

void store_scale(const Tensor& scales, int64_t at, float value) {
  if (scales.dtype == DType::kF32)
    scales.as<float>()[at] = value;
  else if (scales.dtype == DType::kBF16)
    scales.as<BF16>()[at] = to_bf16(value);
  else
    scales.as<F16>()[at] = to_f16(value);
}

}  // namespace

// A task is all columns of one row of blocks: rows that share bytes of codes are in one task, or
// have an even number of elements.
void CpuOps::quantize(const Linear& q, Tensor plain, QuantRule rule) {
  const WeightFormat& format = q.format;
  SKIFF_CHECK(fits(rule, format), "{}", describe(format));
  SKIFF_CHECK(plain.cols() * bits(format.dtype) % 8 == 0 || plain.rows() == 1,
              "rows of {} elements of {}", plain.cols(), skiff::name(format.dtype));
  const int64_t out = plain.rows(), in = plain.cols();
  const int64_t block_out = format.block_out ? format.block_out : std::max<int64_t>(1, out);
  const int64_t block_in = format.block_in ? format.block_in : in;
  const int64_t blocks = num_blocks(in, format.block_in);
  pool_.parallel_for((out + block_out - 1) / block_out, [&](int64_t task, int) {
    const int64_t first = task * block_out, last = std::min(out, first + block_out);
    std::vector<float> x(static_cast<size_t>(in));
    std::vector<Extremes> extremes(static_cast<size_t>(blocks));
    const auto load = [&](int64_t r) {
      copy_row(kernels_, x.data(), DType::kF32, row_data(plain, r), plain.dtype, in);
    };
    const auto each_block = [&](auto f) {
      for (int64_t b = 0; b < blocks; ++b)
        f(static_cast<size_t>(b), x.data() + b * block_in, std::min(block_in, in - b * block_in));
    };
    for (int64_t r = first; r < last; ++r) {
      load(r);
      each_block([&](size_t b, float* from, int64_t n) { extremes[b].include(from, n); });
    }
    std::vector<float> divisors;
    for (int64_t b = 0; b < blocks; ++b) {
      const Extremes& e = extremes[static_cast<size_t>(b)];
      const BlockScale scale = block_scale(rule, format.dtype, *format.scale, e.low, e.high);
      store_scale(q.scale, task * blocks + b, scale.stored);
      divisors.push_back(scale.divisor);
    }
    for (int64_t r = first; r < last; ++r) {
      if (last - first > 1) load(r);
      each_block([&](size_t b, float* from, int64_t n) {
        store_codes(kernels_, q, rule, divisors[b], from, r * in + (from - x.data()), n);
      });
    }
  });
}

}  // namespace skiff::cpu

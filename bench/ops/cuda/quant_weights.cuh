// bench/ops/cuda/quant_weights.cuh -- random quantized weights as checkpoints have them, and
// products of them against the definition. For the benches of quantized products.
#pragma once
#include <cmath>
#include <optional>
#include <vector>

#include "harness.cuh"
#include "ops/cuda/linear/jobs.h"
#include "ops/cuda/quant/codes.cuh"
#include "ops/cuda/quant/prepare.h"

namespace skiff::cuda::bench {

constexpr double kReadLimit = 4.5e12;
constexpr Device kDevice = {Device::kCuda, 0};

struct Named {
  const char* name;
  WeightFormat format;
};

inline WeightFormat format(DType dtype, int block_out, int block_in, DType scale,
                           std::optional<DType> zero = {}) {
  return {
      .dtype = dtype, .block_out = block_out, .block_in = block_in, .scale = scale, .zero = zero};
}

inline const std::vector<Named>& formats() {
  static const std::vector<Named> all = {
      {"wint8", format(DType::kI8, 1, 0, DType::kF32)},
      {"wint4", format(DType::kI4, 1, 0, DType::kBF16)},
      {"int4 g128", format(DType::kI4, 1, 128, DType::kBF16)},
      {"int4 g64", format(DType::kI4, 1, 64, DType::kF16)},
      {"int4 g32", format(DType::kI4, 1, 32, DType::kF32)},
      {"int4 g256", format(DType::kI4, 1, 256, DType::kBF16)},
      {"u4 g128 zeros", format(DType::kU4, 1, 128, DType::kF16, DType::kU4)},
      {"i4 g128 zeros", format(DType::kI4, 1, 128, DType::kBF16, DType::kI8)},
      {"u4 rows zeros", format(DType::kU4, 1, 0, DType::kF32, DType::kU8)},
      {"int8 g64", format(DType::kI8, 1, 64, DType::kBF16)},
      {"fp8 128x128", format(DType::kF8E4M3, 128, 128, DType::kF32)},
      {"fp8 channel", format(DType::kF8E4M3, 1, 0, DType::kF32)},
      {"fp8 tensor", format(DType::kF8E4M3, 0, 0, DType::kF32)}};
  return all;
}

inline Tensor device_tensor(Buffer& memory, DType dtype, std::initializer_list<int64_t> shape) {
  int64_t elements = 1;
  for (const int64_t d : shape) elements *= d;
  memory = Buffer(kDevice, byte_size(dtype, elements));
  return memory.view(dtype, shape);
}

// A weight of random codes, scales and zero points, as checkpoints have it.
struct Weight {
  Buffer codes, scales, zeros, biases, memory;
  Linear plain, prepared;
};

static __global__ void random_codes(uint8_t* to, int64_t bytes, uint64_t seed, bool float8) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < bytes;
       i += int64_t{gridDim.x} * blockDim.x) {
    uint64_t h = (static_cast<uint64_t>(i) + seed) * 0x9e3779b97f4a7c15;
    h = (h ^ h >> 31) * 0xbf58476d1ce4e5b9;
    uint8_t code = static_cast<uint8_t>(h >> 40);
    if (float8 && (code & 127) == 127) code = 0x33;  // no NaN
    to[i] = code;
  }
}

inline void fill_scales(const Tensor& t, uint64_t seed) {
  std::vector<float> v(static_cast<size_t>(t.elements()));
  uint64_t h = seed * 0x9e3779b97f4a7c15 + 1;
  for (float& x : v) {
    h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9 + 12345;
    x = std::ldexp(1.0f + static_cast<float>(h >> 40) * 0x1p-24f, -6) * (h >> 20 & 1 ? 1 : -1);
  }
  std::vector<std::byte> raw(byte_size(t.dtype, t.elements()));
  for (size_t i = 0; i < v.size(); ++i) {
    if (t.dtype == DType::kF32) reinterpret_cast<float*>(raw.data())[i] = v[i];
    if (t.dtype == DType::kF16) reinterpret_cast<__half*>(raw.data())[i] = __float2half(v[i]);
    if (t.dtype == DType::kBF16)
      reinterpret_cast<__nv_bfloat16*>(raw.data())[i] = __float2bfloat16(v[i]);
  }
  check(cudaMemcpy(t.data, raw.data(), raw.size(), cudaMemcpyHostToDevice), "filling");
}

inline int64_t blocks(int64_t size, int block) {
  return block == 0 ? 1 : (size + block - 1) / block;
}

inline void make_weight(Weight& w, const WeightFormat& f, int64_t experts, int64_t out, int64_t in,
                        bool bias, uint64_t seed, cudaStream_t stream) {
  const int64_t e = std::max<int64_t>(1, experts), r = blocks(out, f.block_out),
                c = blocks(in, f.block_in);
  Linear& p = w.plain;
  p = {};
  p.weight = experts > 0 ? device_tensor(w.codes, f.dtype, {e, out, in})
                         : device_tensor(w.codes, f.dtype, {out, in});
  p.format = f;
  p.experts = experts;
  p.scale = experts > 0 ? device_tensor(w.scales, *f.scale, {e, r, c})
                        : device_tensor(w.scales, *f.scale, {r, c});
  random_codes<<<512, 256>>>(static_cast<uint8_t*>(p.weight.data),
                             static_cast<int64_t>(byte_size(f.dtype, e * out * in)), seed,
                             f.dtype == DType::kF8E4M3);
  fill_scales(p.scale, seed + 1);
  if (f.zero) {
    const int64_t n = (e * r * c + 1) / 2 * 2;
    p.zero = device_tensor(w.zeros, *f.zero, {n});
    std::vector<uint8_t> z(byte_size(*f.zero, n));
    for (size_t i = 0; i < z.size(); ++i) {
      const unsigned h = static_cast<unsigned>((i + seed) * 2654435761u >> 20);
      z[i] = static_cast<uint8_t>(*f.zero == DType::kU4   ? h
                                  : *f.zero == DType::kI8 ? h % 16 - 8
                                                          : h % 17);
    }
    check(cudaMemcpy(p.zero.data, z.data(), z.size(), cudaMemcpyHostToDevice), "filling");
  }
  if (bias) {
    p.bias = device_tensor(w.biases, DType::kF32, {out});
    fill(p.bias, seed + 2, 4);
  }
  check(cudaDeviceSynchronize(), "filling");
  w.prepared = prepare_quantized(p, f, kDevice, &w.memory, stream, true);
}

struct Plain {
  const void *codes, *scales, *zeros;
  DType dtype, scale_dtype, zero_dtype;
  int64_t out, in, scale_rows, scale_columns;
  int block_out, block_in;
};

inline Plain plain_of(const Linear& w, int64_t out, int64_t in) {
  const WeightFormat& f = w.format;
  return {w.weight.data,
          w.scale.data,
          w.zero.data,
          f.dtype,
          w.scale.dtype,
          w.zero.dtype,
          out,
          in,
          blocks(out, f.block_out),
          blocks(in, f.block_in),
          f.block_out,
          f.block_in};
}

// The definition: scale * (element - zero), in double.
__device__ inline double value_of(const Plain& p, int64_t expert, int64_t o, int64_t i) {
  const int code = code_at(p.codes, p.dtype, (expert * p.out + o) * p.in + i);
  const int64_t r = p.block_out ? o / p.block_out : 0, c = p.block_in ? i / p.block_in : 0;
  const int64_t at = (expert * p.scale_rows + r) * p.scale_columns + c;
  const double zero = p.zeros ? code_at(p.zeros, p.zero_dtype, at) : 0;
  const double value = p.dtype == DType::kF8E4M3 ? value_of_float8(code) : code;
  return float_at(p.scales, p.scale_dtype, at) * (value - zero);
}

struct Check {
  Plain w;
  const __nv_bfloat16* x;
  const void* out;
  const float* bias;
  const Job* jobs;  // null: one, of all rows
  int64_t x_stride, out_stride;
  int rows, out_features, points, job_count;
  bool out_f32, gated;
  double* worst;
};

__device__ inline double dot(const Check& c, int64_t expert, int r, int64_t o, double* size) {
  double sum = 0;
  *size = 0;
  for (int64_t i = threadIdx.x; i < c.w.in; i += 32) {
    const double v = static_cast<double>(__bfloat162float(c.x[r * c.x_stride + i])) *
                     value_of(c.w, expert, o, i);
    sum += v;
    *size += fabs(v);
  }
  for (int m = 16; m; m /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, m);
    *size += __shfl_xor_sync(0xffffffffu, *size, m);
  }
  return sum;
}

// One warp a point; the op suite's bounds, with one rounding more for the scale.
static __global__ void check_quantized(Check c) {
  for (int64_t i = blockIdx.x; i < c.points; i += gridDim.x) {
    const int64_t all = int64_t{c.rows} * c.out_features,
                  at = c.points == all ? i : i * 2654435761 % all;
    const int r = static_cast<int>(at / c.out_features);
    const int64_t o = at % c.out_features;
    int64_t expert = 0;
    for (int j = 0; j < c.job_count; ++j)
      if (r >= c.jobs[j].first && r < c.jobs[j].first + c.jobs[j].rows) expert = c.jobs[j].expert;
    const double n = static_cast<double>(c.w.in) + 4;
    double size, want = dot(c, expert, r, o, &size), bound = n * 0x1p-24 * size;
    if (c.gated) {
      double up_size;
      const double up = dot(c, expert, r, c.out_features + o, &up_size);
      const double act = want / (1 + exp(-want));
      bound = n * 0x1p-24 * (1.2 * size * fabs(up) + fabs(act) * up_size) +
              16 * 0x1p-24 * fabs(want * up);
      want = act * up;
    } else if (c.bias) {
      want += c.bias[o];
      bound += n * 0x1p-24 * fabs(static_cast<double>(c.bias[o]));
    }
    bound += (c.out_f32 ? 0x1p-24 : 0x1p-8) * (fabs(want) + bound) + 1e-30;
    double e = fabs(value(c.out, c.out_f32, r * c.out_stride + o) - want) / bound;
    if (!(e >= 0)) e = 1e30;
    if (threadIdx.x == 0 && e > 0)
      atomicMax(reinterpret_cast<unsigned long long*>(c.worst), __double_as_longlong(e));
  }
}

}  // namespace skiff::cuda::bench

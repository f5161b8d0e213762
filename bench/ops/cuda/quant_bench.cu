// bench/ops/cuda/quant_bench.cu -- products with quantized weights: right first, then how fast.
#include <cstring>
#include <string>

#include "harness.cuh"
#include "ops/cuda/linear/dense.h"
#include "ops/cuda/quant/channel_call.h"
#include "ops/cuda/quant/codes.cuh"
#include "ops/cuda/quant/prepare.h"
#include "ops/cuda/quant/quantize.h"

namespace skiff::cuda::bench {
namespace {

constexpr double kReadLimit = 4.5e12;
constexpr int64_t kNever = int64_t{1} << 40;
constexpr Device kDevice = {Device::kCuda, 0};

struct Named {
  const char* name;
  WeightFormat format;
};

WeightFormat format(DType dtype, int block_out, int block_in, DType scale,
                    std::optional<DType> zero = {}) {
  return {
      .dtype = dtype, .block_out = block_out, .block_in = block_in, .scale = scale, .zero = zero};
}

const std::vector<Named>& formats() {
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

Tensor device_tensor(Buffer& memory, DType dtype, std::initializer_list<int64_t> shape) {
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

__global__ void random_codes(uint8_t* to, int64_t bytes, uint64_t seed, bool float8) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < bytes;
       i += int64_t{gridDim.x} * blockDim.x) {
    uint64_t h = (static_cast<uint64_t>(i) + seed) * 0x9e3779b97f4a7c15;
    h = (h ^ h >> 31) * 0xbf58476d1ce4e5b9;
    uint8_t code = static_cast<uint8_t>(h >> 40);
    if (float8 && (code & 127) == 127) code = 0x33;  // no NaN
    to[i] = code;
  }
}

void fill_scales(const Tensor& t, uint64_t seed) {
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

int64_t blocks(int64_t size, int block) { return block == 0 ? 1 : (size + block - 1) / block; }

void make_weight(Weight& w, const WeightFormat& f, int64_t experts, int64_t out, int64_t in,
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

Plain plain_of(const Linear& w, int64_t out, int64_t in) {
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
__device__ double value_of(const Plain& p, int64_t expert, int64_t o, int64_t i) {
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

__device__ double dot(const Check& c, int64_t expert, int r, int64_t o, double* size) {
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
__global__ void check_quantized(Check c) {
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

struct Context {
  cudaStream_t stream;
  DenseProducts& dense;
  DenseProducts& streams;              // weights are never unpacked for the library
  DenseProducts* libraries = nullptr;  // the library multiplies channels from one row on
  int checks = 0, failures = 0;
};

void judge(Context& c, Check point, const std::string& what) {
  static double* worst = nullptr;
  if (!worst) check(cudaMalloc(&worst, 8), "allocating");
  check(cudaMemset(worst, 0, 8), "clearing");
  point.worst = worst;
  point.points =
      static_cast<int>(std::min<int64_t>(int64_t{point.rows} * point.out_features, 16384));
  check_quantized<<<1024, 32>>>(point);
  const double e = host<double>(worst, 1)[0];
  ++c.checks;
  if (e <= 1) return;
  if (++c.failures <= 40) std::printf("WRONG %s: %.3g of the bound\n", what.c_str(), e);
}

void dense_case(Context& c, const Named& f, int rows, int64_t in, int64_t out, DType out_type,
                bool bias, bool gated) {
  Weight w;
  make_weight(w, f.format, 0, out, in, bias, 77, c.stream);
  const int64_t columns = gated ? out / 2 : out;
  const Tensor x = random(DType::kBF16, {rows, in}, 5), o = make(out_type, {rows, columns});
  if (gated && !c.dense.gated_product(o, x, w.prepared, Act::kSilu, c.stream)) {
    cudaFree(x.data), cudaFree(o.data);
    return;
  }
  if (!gated) c.dense.product(o, x, w.prepared, c.stream);
  check(cudaStreamSynchronize(c.stream), "a product");
  const Check point = {.w = plain_of(w.plain, out, in),
                       .x = static_cast<const __nv_bfloat16*>(x.data),
                       .out = o.data,
                       .bias = bias ? w.plain.bias.as<float>() : nullptr,
                       .jobs = nullptr,
                       .x_stride = x.row_stride,
                       .out_stride = o.row_stride,
                       .rows = rows,
                       .out_features = static_cast<int>(columns),
                       .out_f32 = out_type == DType::kF32,
                       .gated = gated};
  judge(c, point,
        fmt::format("{} rows {} in {} out {} {}{}{}", f.name, rows, in, out, name(out_type),
                    bias ? " bias" : "", gated ? " gated" : ""));
  cudaFree(x.data), cudaFree(o.data);
}

void grouped_case(Context& c, const Named& f, int rows_of_job, bool gated) {
  const int64_t experts = 5, in = 520, out = 400;
  Weight w;
  make_weight(w, f.format, experts, out, in, false, 99, c.stream);
  std::vector<Job> jobs;
  int rows = 0;
  for (const auto& [expert, n] : std::vector<std::pair<int, int>>{
           {0, 1}, {1, rows_of_job}, {3, rows_of_job}, {3, rows_of_job / 2}, {4, 3}}) {
    jobs.push_back({expert, rows, n, 0});
    rows += n;
  }
  Buffer list(kDevice, jobs.size() * sizeof(Job)), count(kDevice, 4);
  const auto n = static_cast<int32_t>(jobs.size());
  check(cudaMemcpy(list.data(), jobs.data(), jobs.size() * sizeof(Job), cudaMemcpyHostToDevice),
        "jobs");
  check(cudaMemcpy(count.data(), &n, 4, cudaMemcpyHostToDevice), "jobs");
  const JobList all = {.jobs = reinterpret_cast<const Job*>(list.data()),
                       .count = reinterpret_cast<const int32_t*>(count.data()),
                       .capacity = n + 3};
  const int64_t columns = gated ? out / 2 : out;
  const Tensor x = random(DType::kBF16, {rows, in}, 5), o = make(DType::kBF16, {rows, columns});
  check(cudaDeviceSynchronize(), "filling");
  if (gated)
    c.dense.streamed().grouped_gated(o, x, w.prepared, Act::kSilu, all, rows_of_job, c.stream);
  else
    c.dense.streamed().grouped(o, x, w.prepared, all, rows_of_job, c.stream);
  check(cudaStreamSynchronize(c.stream), "a product");
  const Check point = {.w = plain_of(w.plain, out, in),
                       .x = static_cast<const __nv_bfloat16*>(x.data),
                       .out = o.data,
                       .bias = nullptr,
                       .jobs = all.jobs,
                       .x_stride = x.row_stride,
                       .out_stride = o.row_stride,
                       .rows = rows,
                       .out_features = static_cast<int>(columns),
                       .job_count = n,
                       .out_f32 = false,
                       .gated = gated};
  judge(c, point, fmt::format("{} grouped {}{}", f.name, rows_of_job, gated ? " gated" : ""));
  cudaFree(x.data), cudaFree(o.data);
}

void correctness(Context& c) {
  const int shapes[][3] = {{1, 128, 128},  {1, 32, 2},      {3, 96, 130},    {1, 257, 129},
                           {8, 4096, 512}, {9, 1096, 400},  {16, 2560, 256}, {33, 264, 1000},
                           {64, 520, 384}, {100, 768, 272}, {130, 640, 208}, {300, 16384, 96}};
  for (const Named& f : formats()) {
    for (const auto& s : shapes) {
      if (bits(f.format.dtype) == 4 && s[1] % 2 == 1 && s[2] % 2 == 1) continue;
      dense_case(c, f, s[0], s[1], s[2], DType::kBF16, s[2] % 3 == 1, false);
      dense_case(c, f, s[0], s[1], s[2], DType::kF32, s[2] % 3 == 0, false);
      if (s[2] % 16 == 0 && f.format.block_out < 2)
        dense_case(c, f, s[0], s[1], s[2], DType::kBF16, false, true);
    }
    for (const int rows : {8, 16, 32, 64, 128})
      for (int gated = 0; gated < 2; ++gated) grouped_case(c, f, rows, gated);
  }
}

// Rows alone and in company, bit for bit, where products are in one order.
void invariance(Context& c, DenseProducts& products) {
  for (const Named& f : formats()) {
    Weight w;
    make_weight(w, f.format, 0, 1536, 2048, false, 3, c.stream);
    const Tensor x = random(DType::kBF16, {128, 2048}, 5);
    const Tensor all = make(DType::kF32, {128, 1536}), part = make(DType::kF32, {128, 1536});
    check(cudaDeviceSynchronize(), "filling");
    products.product(all, x, w.prepared, c.stream);
    for (const int n : {1, 5, 16, 30, 64, 128}) {
      products.product(part.row_range(0, n), x.row_range(0, n), w.prepared, c.stream);
      check(cudaStreamSynchronize(c.stream), "a product");
      ++c.checks;
      if (host<uint32_t>(all.data, n * 1536) == host<uint32_t>(part.data, n * 1536)) continue;
      ++c.failures;
      std::printf("%s: %d rows differ from the same rows of 128\n", f.name, n);
    }
    cudaFree(x.data), cudaFree(all.data), cudaFree(part.data);
  }
}

// All elements of a weight quantized on the device against the rule on the host.
void rules(Context& c) {
  const int64_t out = 130, in = 260;
  const Tensor plain = random(DType::kBF16, {out, in}, 21);
  check(cudaDeviceSynchronize(), "filling");
  const auto x = host<__nv_bfloat16>(plain.data, out * in);
  struct Case {
    const char* name;
    WeightFormat format;
    QuantRule rule;
  };
  for (const Case& k : std::initializer_list<Case>{
           {"kPaddle 8", format(DType::kI8, 1, 0, DType::kF32), QuantRule::kPaddle},
           {"kPaddle 4", format(DType::kI4, 1, 0, DType::kF32), QuantRule::kPaddle},
           {"kAbsMax 8", format(DType::kI8, 1, 128, DType::kBF16), QuantRule::kAbsMax},
           {"kAbsMax 4", format(DType::kI4, 1, 64, DType::kF16), QuantRule::kAbsMax},
           {"kSignedExtreme", format(DType::kI4, 1, 128, DType::kBF16), QuantRule::kSignedExtreme},
           {"kFloat8", format(DType::kF8E4M3, 128, 128, DType::kF32), QuantRule::kFloat8},
           {"kFloat8 tensor", format(DType::kF8E4M3, 0, 0, DType::kF32), QuantRule::kFloat8}}) {
    Buffer codes, scales;
    const int64_t r = blocks(out, k.format.block_out), columns = blocks(in, k.format.block_in);
    Linear q = {.weight = device_tensor(codes, k.format.dtype, {out, in}),
                .scale = device_tensor(scales, *k.format.scale, {r, columns}),
                .format = k.format};
    quantize(q, plain, k.rule, c.stream);
    check(cudaStreamSynchronize(c.stream), "quantizing");
    const auto got = host<uint8_t>(q.weight.data, static_cast<int64_t>(codes.size()));
    const auto stored = host<uint8_t>(q.scale.data, static_cast<int64_t>(scales.size()));
    const bool four = k.format.dtype == DType::kI4;
    int wrong = 0;
    for (int64_t o = 0; o < out; ++o)
      for (int64_t i = 0; i < in; ++i) {
        const int64_t bo = k.format.block_out ? k.format.block_out : out;
        const int64_t bi = k.format.block_in ? k.format.block_in : in;
        float extreme = 0;
        for (int64_t a = o / bo * bo; a < std::min(out, o / bo * bo + bo); ++a)
          for (int64_t b = i / bi * bi; b < std::min(in, i / bi * bi + bi); ++b) {
            const float v = __bfloat162float(x[a * in + b]);
            if (std::fabs(v) > std::fabs(extreme) ||
                (std::fabs(v) == std::fabs(extreme) && v > extreme))
              extreme = v;
          }
        float scale = k.rule == QuantRule::kSignedExtreme ? extreme / -8
                      : k.rule == QuantRule::kFloat8      ? std::fabs(extreme) / 448
                      : !four                             ? std::fabs(extreme) / 127
                      : k.rule == QuantRule::kPaddle      ? std::fabs(extreme) / 7
                                                          : std::fabs(extreme) / 7.5f;
        const int64_t at = o / bo * columns + i / bi;
        float kept = scale;
        if (k.format.scale == DType::kBF16) kept = __bfloat162float(__float2bfloat16(scale));
        if (k.format.scale == DType::kF16) kept = __half2float(__float2half(scale));
        float there = 0;
        if (k.format.scale == DType::kF32)
          there = reinterpret_cast<const float*>(stored.data())[at];
        if (k.format.scale == DType::kBF16)
          there = __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(stored.data())[at]);
        if (k.format.scale == DType::kF16)
          there = __half2float(reinterpret_cast<const __half*>(stored.data())[at]);
        const float quotient =
            __bfloat162float(x[o * in + i]) / (k.rule == QuantRule::kPaddle ? scale : kept);
        int want, code;
        const int64_t e = o * in + i;
        if (k.rule == QuantRule::kFloat8) {
          want = __nv_fp8_e4m3(std::clamp(quotient, -448.0f, 448.0f)).__x;
          code = got[static_cast<size_t>(e)];
        } else {
          const bool paddle = k.rule == QuantRule::kPaddle;
          const float whole = paddle ? std::round(quotient) : std::nearbyint(quotient);
          want = static_cast<int>(
              std::clamp(whole, four ? (paddle ? -7.0f : -8.0f) : -127.0f, four ? 7.0f : 127.0f));
          code = four ? ((got[static_cast<size_t>(e / 2)] >> (e % 2 * 4) & 15) ^ 8) - 8
                      : static_cast<int8_t>(got[static_cast<size_t>(e)]);
        }
        wrong += want != code || there != kept;
      }
    ++c.checks;
    c.failures += wrong > 0;
    if (wrong > 0)
      std::printf("WRONG %s: %d of %d elements\n", k.name, wrong, static_cast<int>(out * in));
  }
  cudaFree(plain.data);
}

struct Shape {
  int64_t out, in;
};

// Times of graphs of products by enough copies of a weight to exceed the L2.
void time_shape(Context& c, const Named& f, const Shape& s, const std::vector<int>& rows_list,
                bool gated) {
  Weight w;
  make_weight(w, f.format, 0, s.out, s.in, false, 7, c.stream);
  const size_t bytes = w.memory.size();
  const int copies = static_cast<int>((size_t{300} << 20) / bytes + 1);
  Buffer memory(kDevice, bytes * static_cast<size_t>(copies));
  std::vector<Linear> all;
  for (int i = 0; i < copies; ++i) {
    std::byte* to = memory.data() + static_cast<size_t>(i) * bytes;
    check(cudaMemcpy(to, w.memory.data(), bytes, cudaMemcpyDeviceToDevice), "copying");
    Linear one = w.prepared;
    const auto moved = [&](void* p) { return to + (static_cast<std::byte*>(p) - w.memory.data()); };
    one.weight.data = moved(one.weight.data);
    if (one.scale) one.scale.data = moved(one.scale.data);
    all.push_back(one);
  }
  for (const int rows : rows_list) {
    const int64_t columns = gated ? s.out / 2 : s.out;
    const Tensor x = random(DType::kBF16, {rows, s.in}, 7),
                 out = make(DType::kBF16, {rows, columns});
    // Without its gate where that is a kernel of its own.
    const Tensor both = gated ? make(DType::kBF16, {rows, s.out}) : out;
    const int used = rows > 512 ? 2 : copies;
    const bool may_unpack = f.format.input && rows >= 48;
    for (DenseProducts* products : {&c.dense, may_unpack ? &c.streams : nullptr}) {
      if (!products) continue;
      products->tune(both, x, all[0], c.stream);
      products->settle();
      const auto product = [&](const Linear& w) {
        if (gated && products->gated_product(out, x, w, Act::kSilu, c.stream)) return;
        products->product(both, x, w, c.stream);
      };
      const double us = graph_us(
                            [&] {
                              for (int i = 0; i < used; ++i) product(all[static_cast<size_t>(i)]);
                            },
                            c.stream) /
                        used;
      const double read = static_cast<double>(bytes), flops = 2.0 * rows * s.out * s.in;
      std::printf("%-14s %6ldx%-6ld%s rows %5d %8.1f us %6.0f GB/s (%3.0f %%) %6.1f TFLOP/s%s\n",
                  f.name, static_cast<long>(s.out), static_cast<long>(s.in), gated ? " gated" : "",
                  rows, us, read / us / 1e3, 100 * read / us * 1e6 / kReadLimit, flops / us / 1e6,
                  products == &c.streams ? ", streamed" : "");
    }
    cudaFree(x.data), cudaFree(out.data);
    if (gated) cudaFree(both.data);
  }
}

WeightFormat float8_by_blocks() {
  WeightFormat f = format(DType::kF8E4M3, 128, 128, DType::kF32);
  f.input = InputFormat{DType::kF8E4M3, InputFormat::kGroups};
  return f;
}
WeightFormat float8_by_tokens() {
  WeightFormat f = format(DType::kF8E4M3, 1, 0, DType::kF32);
  f.input = InputFormat{DType::kF8E4M3, InputFormat::kToken};
  return f;
}

// Every way to divide a product by a weight with a scale for each output, its rows being rounded,
// beside cuBLASLt's (which rounds them, too).
void divide_channels(Context& c, const Shape& s, const std::vector<int>& rows_list, bool gated) {
  Weight w;
  make_weight(w, float8_by_tokens(), 0, s.out, s.in, false, 7, c.stream);
  const size_t bytes = w.memory.size();
  const int copies = static_cast<int>((size_t{300} << 20) / bytes + 1);
  Buffer memory(kDevice, bytes * static_cast<size_t>(copies));
  std::vector<Linear> all;
  for (int i = 0; i < copies; ++i) {
    std::byte* to = memory.data() + static_cast<size_t>(i) * bytes;
    check(cudaMemcpy(to, w.memory.data(), bytes, cudaMemcpyDeviceToDevice), "copying");
    Linear one = w.prepared;
    one.weight.data = to;
    one.scale.data = to + (static_cast<std::byte*>(w.prepared.scale.data) - w.memory.data());
    all.push_back(one);
  }
  Buffer scratch(kDevice, size_t{64} << 20);
  for (const int rows : rows_list) {
    const Tensor x = random(DType::kBF16, {rows, s.in}, 7),
                 out = make(DType::kBF16, {rows, gated ? s.out / 2 : s.out}),
                 both = gated ? make(DType::kBF16, {rows, s.out}) : out;
    const RoundedRows rounded = round_rows({scratch.data(), scratch.size()}, x, c.stream);
    const auto time = [&](const std::function<void(const Linear&)>& f) {
      const auto each = [&] {
        for (const Linear& one : all) f(one);
      };
      return graph_us(each, c.stream) / copies;
    };
    std::printf("channels %ldx%ld%s rows %d:", static_cast<long>(s.out), static_cast<long>(s.in),
                gated ? " gated" : "", rows);
    std::printf(" rounding %.1f", time([&](const Linear&) {
                  round_rows({scratch.data(), scratch.size()}, x, c.stream);
                }));
    std::printf(" library %.1f",
                time([&](const Linear& one) { c.libraries->product(both, x, one, c.stream); }));
    // In one job, and in jobs of 64 rows.
    const channels::ChannelShape chosen = channels::channel_shape(rows, s.out, s.in, 132, false);
    for (const int job : {chosen.rows, 64}) {
      if (job == 64 && chosen.rows <= 64 && job != chosen.rows) continue;
      std::printf(" jobs of %d", job);
      for (const int splits : {1, 2, 4}) {
        if (2 * splits > s.in / channels::kColumns) continue;
        const double us = time([&](const Linear& one) {
          channels::start_channels({.out = out, .x = rounded, .gated = gated}, one, {job, splits},
                                   c.stream);
        });
        std::printf(" %d%s %.1f", splits, splits == chosen.splits ? "*" : "", us);
      }
      if (chosen.rows == 64) break;
    }
    std::printf("\n");
    std::fflush(stdout);
    cudaFree(x.data), cudaFree(out.data);
    if (gated) cudaFree(both.data);
  }
}

int run(int argc, char** argv) {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "starting");
  const size_t bytes = DenseProducts::scratch_bytes(8192, 8192);  // as in service
  Buffer scratch(kDevice, bytes);
  DenseProducts dense(scratch.data(), bytes);
  DenseProducts streams(scratch.data(), bytes,
                        {.unpacks_from = kNever, .library_from = kNever, .channels_from = kNever});
  DenseProducts libraries(scratch.data(), bytes, {.channels_from = 1});
  Context c = {stream, dense, streams, &libraries};
  if (argc > 1 && !std::strcmp(argv[1], "channels")) {
    const std::vector<int> few = {8, 16, 32, 64, 96, 128, 192, 256};
    for (const Shape& s : {Shape{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}})
      divide_channels(c, s, few, false);
    divide_channels(c, {28672, 4096}, few, true);
    divide_channels(c, {8192, 8192}, {16, 64, 128}, false);
    for (const Named& f :
         {Named{"fp8 x fp8", float8_by_blocks()}, {"fp8 channels", float8_by_tokens()}}) {
      time_shape(c, f, {7168, 16384}, {128, 4096}, false);
      time_shape(c, f, {8192, 8192}, {1, 2, 4, 4096}, false);
    }
    return 0;
  }
  rules(c);
  correctness(c);
  Buffer other_scratch(kDevice, bytes);
  DenseProducts in_one_order(other_scratch.data(), bytes, {.one_order = true});
  invariance(c, in_one_order);
  std::printf("%d checks against the definition, %d failures\n", c.checks, c.failures);
  if (c.failures > 0 || (argc > 1 && !std::strcmp(argv[1], "check"))) return c.failures != 0;
  const Named rounded = {"fp8 x fp8", float8_by_blocks()},
              channels = {"fp8 channels", float8_by_tokens()};
  const std::vector<Named>& all = formats();
  for (const Named& f : {all[0], all[1], all[2], all[10], rounded})
    time_shape(c, f, {8192, 8192}, {1, 8, 16, 32, 64, 128, 256, 4096}, false);
  time_shape(c, rounded, {8192, 8192}, {384, 512, 768, 1024, 2048}, false);
  time_shape(c, rounded, {7168, 16384}, {128, 4096}, false);
  time_shape(c, channels, {8192, 8192}, {1, 4, 8, 16, 32, 64, 128, 256, 4096}, false);
  time_shape(c, channels, {7168, 16384}, {128, 4096}, false);
  time_shape(c, all[2], {8192, 8192}, {1, 128, 4096}, false);  // once more: clocks change
  for (const Named& f : {all[0], all[2], rounded, channels}) {
    time_shape(c, f, {6144, 4096}, {1, 16, 128}, false);
    time_shape(c, f, {4096, 4096}, {1, 16, 128}, false);
    time_shape(c, f, {28672, 4096}, {1, 16, 128, 1024}, true);
    time_shape(c, f, {4096, 14336}, {1, 16, 128, 1024}, false);
  }
  return 0;
}

}  // namespace
}  // namespace skiff::cuda::bench

int main(int argc, char** argv) {
  try {
    return skiff::cuda::bench::run(argc, argv);
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
}

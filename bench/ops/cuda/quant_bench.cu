// bench/ops/cuda/quant_bench.cu -- products with quantized weights: right first, then how fast.
#include <cstring>
#include <string>

#include "ops/cuda/linear/dense.h"
#include "ops/cuda/quant/channel_call.h"
#include "ops/cuda/quant/quantize.h"
#include "quant_weights.cuh"

namespace skiff::cuda::bench {
namespace {

constexpr int64_t kNever = int64_t{1} << 40;

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

// The dense products of 8 bits that a rank of four has of DeepSeek-R1 and of ERNIE-4.5-300B-A47B.
void time_ranks(Context& c) {
  const Named& wint8 = formats()[0];
  const std::vector<int> rows = {8, 16, 32, 64, 128, 256};
  for (const Shape& s :
       {Shape{2112, 7168}, {6144, 1536}, {7168, 4096}, {7168, 512}, {2560, 8192}, {8192, 2048}})
    time_shape(c, wint8, s, rows, false);
  time_shape(c, wint8, {1024, 7168}, rows, true);
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
  if (argc > 1 && !std::strcmp(argv[1], "ranks")) {
    time_ranks(c);
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
  using namespace skiff::cuda::bench;
  return status_of(run, argc, argv);
}

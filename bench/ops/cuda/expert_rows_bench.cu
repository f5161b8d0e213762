// bench/ops/cuda/expert_rows_bench.cu -- what rows of a prompt meet around the experts of a mixture
// in block-scaled e4m3: their rounding, the grouped GEMMs, the sum of a token's experts. Right
// first, then how fast. Argument: "check" ends before the timing.
#include <cuda_fp8.h>

#include <cstring>
#include <numeric>
#include <stdexcept>

#include "harness.cuh"
#include "ops/cuda/linear/stream.h"
#include "ops/cuda/moe/combination.h"
#include "ops/cuda/quant/inputs.h"
#include "ops/cuda/quant/prepare.h"
#include "tensor/memory.h"

namespace skiff::cuda::bench {
namespace {

constexpr Device kDevice = {Device::kCuda, 0};
constexpr double kReadLimit = 4.5e12;  // bytes/s
constexpr int kGroup = 128;

struct Context {
  cudaStream_t stream;
  InputScratch scratch;
  const StreamedProducts& products;
  int checks = 0, failures = 0;

  void judge(bool right, const char* what, int64_t rows, int64_t columns) {
    ++checks;
    failures += !right;
    if (!right)
      std::printf("WRONG %s: %lld rows of %lld\n", what, static_cast<long long>(rows),
                  static_cast<long long>(columns));
  }
};

WeightFormat blocks() {
  return {.dtype = DType::kF8E4M3,
          .block_out = kGroup,
          .block_in = kGroup,
          .scale = DType::kF32,
          .input = InputFormat{DType::kF8E4M3, InputFormat::kGroups}};
}

// Jobs of up to `most` rows for experts that have so many rows each.
struct Jobs {
  int rows = 0;
  Buffer memory;
  JobList list;

  explicit Jobs(const std::vector<int>& rows_of_experts, int most = 1 << 30) {
    std::vector<Job> jobs(1);  // the place of their number
    for (size_t e = 0; e < rows_of_experts.size(); ++e)
      for (int left = rows_of_experts[e]; left > 0; left -= most) {
        jobs.push_back({static_cast<int32_t>(e), rows, std::min(left, most), 0});
        rows += jobs.back().rows;
      }
    const auto n = static_cast<int32_t>(jobs.size() - 1);
    jobs[0].expert = n;
    memory = Buffer(kDevice, jobs.size() * sizeof(Job));
    check(cudaMemcpy(memory.data(), jobs.data(), memory.size(), cudaMemcpyHostToDevice), "jobs");
    list = {.jobs = reinterpret_cast<const Job*>(memory.data()) + 1,
            .count = reinterpret_cast<const int32_t*>(memory.data()),
            .capacity = n};
  }
};

// Every code and scale against the definition, with true divisions.
void check_rounding(Context& c, int rows, int64_t in, bool in_place) {
  const Tensor x = random(DType::kBF16, {rows, in}, static_cast<uint64_t>(rows + in), 30);
  const auto value = host<__nv_bfloat16>(x.data, rows * in);
  const Linear w = {.format = blocks()};
  const Jobs job({rows});
  const MetRows met =
      meet(c.scratch, Met::kFloat8, x, w, in_place ? job.list : JobList{}, c.stream);
  check(cudaStreamSynchronize(c.stream), "rounding");
  const auto codes = host<uint8_t>(met.x.data, rows * met.x.row_stride);
  const int64_t groups = (in + kGroup - 1) / kGroup;
  const auto scales = host<float>(met.chunk_scales, groups * met.chunk_stride);
  bool right = true;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t g = 0; g < groups; ++g) {
      float most = 1e-4f;
      const int64_t end = std::min(in, (g + 1) * kGroup);
      for (int64_t i = g * kGroup; i < end; ++i)
        most = std::max(most, std::fabs(__bfloat162float(value[r * in + i])));
      const float scale = most / 448.0f;
      right &= scales[g * met.chunk_stride + r] == scale;
      for (int64_t i = g * kGroup; i < end; ++i)
        right &= codes[r * met.x.row_stride + i] ==
                 __nv_fp8_e4m3(__bfloat162float(value[r * in + i]) / scale).__x;
    }
  c.judge(right, in_place ? "rounding in place" : "rounding", rows, in);
  cudaFree(x.data);
}

struct Copies {
  Tensor out, outer, expert, weight, more;
  Buffer position;

  Copies(int tokens, int top_k, int64_t hidden)
      : out(make(DType::kBF16, {tokens, hidden})),
        outer(random(DType::kBF16, {int64_t{tokens} * top_k, hidden}, 3)),
        expert(make(DType::kI32, {tokens, top_k})),
        weight(random(DType::kF32, {tokens, top_k}, 5)),
        more(random(DType::kBF16, {tokens, hidden}, 6)),
        position(kDevice, static_cast<size_t>(tokens) * static_cast<size_t>(top_k) * 4) {
    const size_t n = static_cast<size_t>(tokens) * static_cast<size_t>(top_k);
    std::vector<int32_t> places(n), experts(n);
    std::iota(places.begin(), places.end(), 0);
    uint64_t h = 9;
    for (size_t i = n; i > 1; --i) {
      h = (h ^ h >> 31) * 0xbf58476d1ce4e5b9 + 1;
      std::swap(places[i - 1], places[(h >> 20) % i]);
      experts[i - 1] = (h >> 9) % 11 == 0 ? -1 : 1;
    }
    check(cudaMemcpy(position.data(), places.data(), 4 * n, cudaMemcpyHostToDevice), "places");
    check(cudaMemcpy(expert.data, experts.data(), 4 * n, cudaMemcpyHostToDevice), "experts");
  }
  Combination combination(bool with_more) const {
    return {.out = out,
            .outer = outer,
            .position = reinterpret_cast<const int32_t*>(position.data()),
            .expert = expert,
            .weight = weight,
            .more = with_more ? more : Tensor{}};
  }
  ~Copies() {
    for (const Tensor& t : {out, outer, expert, weight, more}) cudaFree(t.data);
  }
};

// Bit for bit against sums in order on the host.
void check_combine(Context& c, int tokens, int top_k, int64_t hidden, bool with_more) {
  const Copies all(tokens, top_k, hidden);
  combine(all.combination(with_more), c.stream);
  check(cudaStreamSynchronize(c.stream), "combining");
  const int64_t copies = int64_t{tokens} * top_k;
  const auto outer = host<__nv_bfloat16>(all.outer.data, copies * hidden),
             more = host<__nv_bfloat16>(all.more.data, tokens * hidden),
             out = host<__nv_bfloat16>(all.out.data, tokens * hidden);
  const auto weight = host<float>(all.weight.data, copies);
  const auto expert = host<int32_t>(all.expert.data, copies),
             position = host<int32_t>(all.position.data(), copies);
  bool right = true;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < hidden; ++i) {
      float sum = 0;
      for (int64_t copy = t * top_k; copy < (t + 1) * top_k; ++copy)
        if (expert[copy] >= 0)
          sum = std::fmaf(weight[copy], __bfloat162float(outer[position[copy] * hidden + i]), sum);
      if (with_more)
        sum = __bfloat162float(__float2bfloat16_rn(sum)) + __bfloat162float(more[t * hidden + i]);
      const __nv_bfloat16 want = __float2bfloat16_rn(sum);
      right &= std::memcmp(&want, &out[t * hidden + i], 2) == 0;
    }
  c.judge(right, "combining", tokens, hidden);
}

void say(const char* what, double us, double bytes) {
  std::printf("%-40s %8.1f us  %5.2f TB/s  %3.0f %%\n", what, us, bytes / us * 1e-6,
              bytes / us * 1e6 / kReadLimit * 100);
}

void time_rows(Context& c, int tokens, int top_k, int64_t hidden, int64_t width) {
  const int copies = tokens * top_k;
  std::printf("%d tokens, %d copies of each, %lld x %lld\n", tokens, top_k,
              static_cast<long long>(hidden), static_cast<long long>(width));
  const Tensor x = random(DType::kBF16, {tokens, hidden}, 1),
               middle = random(DType::kBF16, {copies, width}, 2);
  const Linear w = {.format = blocks()};
  const Jobs job({copies});
  const double each = static_cast<double>(tokens) * static_cast<double>(hidden),
               all = static_cast<double>(copies) * static_cast<double>(width);
  say("rounding a token's row",
      graph_us([&] { meet(c.scratch, Met::kFloat8, x, w, {}, c.stream); }, c.stream), 3 * each);
  say("rounding copies in place",
      graph_us([&] { meet(c.scratch, Met::kFloat8, middle, w, job.list, c.stream); }, c.stream),
      3 * all);
  const Copies sums(tokens, top_k, hidden);
  const Combination combination = sums.combination(false);
  say("combining", graph_us([&] { combine(combination, c.stream); }, c.stream),
      2 * each * (top_k + 1));
  cudaFree(x.data), cudaFree(middle.data);
}

// Rows of bytes that are codes of e4m3 but NaN.
__global__ void random_codes(uint8_t* to, int64_t bytes, uint64_t seed) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < bytes;
       i += int64_t{gridDim.x} * blockDim.x) {
    uint64_t h = (static_cast<uint64_t>(i) + seed) * 0x9e3779b97f4a7c15;
    h = (h ^ h >> 31) * 0xbf58476d1ce4e5b9;
    const auto code = static_cast<uint8_t>(h >> 40);
    to[i] = (code & 127) == 127 ? 0x33 : code;
  }
}

// A stack of random weights in blocks of e4m3.
struct Stack {
  Buffer codes, memory;
  Linear plain = {.format = blocks()}, prepared;

  Stack(int experts, int64_t out, int64_t in, cudaStream_t stream)
      : codes(kDevice, static_cast<size_t>(experts * out * in)) {
    random_codes<<<1024, 256>>>(reinterpret_cast<uint8_t*>(codes.data()), experts * out * in, 1);
    plain.experts = experts;
    plain.weight = codes.view(DType::kF8E4M3, {experts, out, in});
    plain.scale = random(DType::kF32, {experts, out / kGroup, in / kGroup}, 4, 0.01f);
    check(cudaDeviceSynchronize(), "filling");
    prepared = prepare_quantized(plain, plain.format, kDevice, &memory, stream, true);
  }
  ~Stack() { cudaFree(plain.scale.data); }
};
constexpr int kJobRows = 128;

// Rows that are scaled as a layer's are, and what they become in other scratch than outputs.
struct RoundedX {
  Tensor x;
  Buffer memory;
  MetRows rows;

  RoundedX(const Jobs& jobs, const Linear& w, int64_t in, cudaStream_t stream)
      : x(random(DType::kBF16, {jobs.rows, in}, 7)),
        memory(kDevice, met_scale_bytes(jobs.rows, in)) {
    rows = meet({memory.data(), memory.size()}, Met::kFloat8, x, w, jobs.list, stream);
  }
  ~RoundedX() { cudaFree(x.data); }
};

// Codes that the gate writes against those of rows that are rounded behind it, bit for bit.
void check_gate(Context& c) {
  const Jobs jobs({700, 0, 129, 1300, 768, 831, 900, 1, 1500, 64, 20}, kJobRows);
  constexpr int64_t kWidth = 1536, kIn = 384;
  const Stack w(11, 2 * kWidth, kIn, c.stream), next(11, 256, kWidth, c.stream);
  const RoundedX met(jobs, w.prepared, kIn, c.stream);
  const Tensor apart = make(DType::kBF16, {jobs.rows, kWidth}),
               together = make(DType::kBF16, {jobs.rows, kWidth});
  Buffer memory(kDevice, met_scale_bytes(jobs.rows, kWidth));
  c.products.grouped_gated(apart, met.rows.x, w.prepared, Act::kSilu, jobs.list, kJobRows, c.stream,
                           met.rows);
  const MetRows want =
      meet({memory.data(), memory.size()}, Met::kFloat8, apart, next.prepared, jobs.list, c.stream);
  const auto got = c.products.grouped_gated_rounded(together, met.rows, w.prepared, next.prepared,
                                                    Act::kSilu, jobs.list, kJobRows, c.stream);
  check(cudaStreamSynchronize(c.stream), "gating");
  if (!got) return c.judge(false, "a gate that should round", jobs.rows, kWidth);
  bool right = got->chunk_stride == want.chunk_stride && got->x.row_stride == want.x.row_stride;
  const int64_t bytes = jobs.rows * 2 * kWidth;
  const auto codes = host<uint8_t>(got->x.data, bytes),
             codes_want = host<uint8_t>(want.x.data, bytes);
  for (int64_t r = 0; r < jobs.rows; ++r)
    right &= std::memcmp(&codes[r * 2 * kWidth], &codes_want[r * 2 * kWidth], kWidth) == 0;
  const int64_t scales = kWidth / kGroup * want.chunk_stride;
  const auto scale = host<float>(got->chunk_scales, scales),
             scale_want = host<float>(want.chunk_scales, scales);
  for (int64_t i = 0; i < scales; ++i)
    right &= i % want.chunk_stride >= jobs.rows || scale[i] == scale_want[i];
  c.judge(right, "codes of the gate", jobs.rows, kWidth);
  cudaFree(apart.data), cudaFree(together.data);
}

// Experts that all have as many rows, in whole jobs.
void time_grouped(Context& c, int experts, int rows_each, int64_t out, int64_t in, bool gated) {
  const Stack w(experts, out, in, c.stream);
  const Jobs jobs(std::vector<int>(static_cast<size_t>(experts), rows_each), kJobRows);
  const RoundedX met(jobs, w.prepared, in, c.stream);
  const Tensor y = make(DType::kBF16, {jobs.rows, gated ? out / 2 : out});
  const auto say_product = [&](const char* what, const std::function<void()>& f) {
    const double us = graph_us(f, c.stream);
    std::printf("%d experts of %d rows, %lld x %lld%s: %.1f us  %.0f TFLOP/s\n", experts, rows_each,
                static_cast<long long>(out), static_cast<long long>(in), what, us,
                2e-6 * static_cast<double>(jobs.rows) * static_cast<double>(out * in) / us);
  };
  const Linear& to = w.prepared;
  if (!gated) {
    say_product("", [&] {
      c.products.grouped(y, met.rows.x, to, jobs.list, kJobRows, c.stream, met.rows);
    });
  } else {
    say_product(" gated", [&] {
      c.products.grouped_gated(y, met.rows.x, to, Act::kSilu, jobs.list, kJobRows, c.stream,
                               met.rows);
    });
    say_product(" gated and rounded", [&] {
      c.products.grouped_gated_rounded(y, met.rows, to, to, Act::kSilu, jobs.list, kJobRows,
                                       c.stream);
    });
  }
  cudaFree(y.data);
}

int run(int argc, char** argv) {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "starting");
  Buffer scratch(kDevice, size_t{1} << 29), workspace(kDevice, StreamedProducts::workspace_bytes());
  check(cudaMemset(workspace.data(), 0, workspace.size()), "starting");
  const InputScratch inputs = {scratch.data(), scratch.size()};
  const StreamedProducts products(workspace.data(), inputs, false);
  Context c = {stream, inputs, products};
  for (const int rows : {1, 7, 130, 2049})
    for (const int64_t in : {128, 1536, 2056, 4096, 7168}) {
      check_rounding(c, rows, in, false);
      check_rounding(c, rows, in, true);
    }
  for (const int top_k : {1, 6, 8, 9})
    for (const int tokens : {5, 1023, 1025, 1026})
      for (const int64_t hidden : {8, 264, 2560})
        check_combine(c, tokens, top_k, hidden, hidden < 9);
  check_gate(c);
  std::printf("%d checks, %d failures\n", c.checks, c.failures);
  if (c.failures > 0 || (argc > 1 && !std::strcmp(argv[1], "check"))) return c.failures != 0;
  time_rows(c, 8192, 8, 2560, 1536);
  time_rows(c, 4096, 9, 7168, 2048);
  time_grouped(c, 64, 768, 3072, 2560, true);
  time_grouped(c, 64, 768, 2560, 1536, false);
  time_grouped(c, 16, 2048, 4096, 7168, true);
  time_grouped(c, 16, 2048, 7168, 2048, false);
  return 0;
}

}  // namespace
}  // namespace skiff::cuda::bench

int main(int argc, char** argv) {
  using namespace skiff::cuda::bench;
  return status_of(run, argc, argv);
}

// Measures latent attention on the device: mla_attend, heads_linear, mla_store, and latent_attend
// where it is un-absorbed. Every kernel is first compared with the formula in double; its speed is
// measured only if no check failed.
//   bench_mla [check | expanded | absorbed | all]
#include <cmath>

#include "mla_world.cuh"
#include "ops/cuda/mla/store.h"
#include "ops/read_bandwidth.h"

namespace skiff::cuda::bench {
namespace {

int checks = 0, failures = 0;

}  // namespace

void report(bool good, const std::string& what) {
  ++checks;
  if (!good) ++failures;
  fmt::print("{} {}\n", good ? "ok  " : "FAIL", what);
}

namespace {

// The formula: one block for each vector; value and size [n, kRank]: the result, and the weighted
// sum of absolute values.
__global__ void naive(const Vector* vectors, const __nv_bfloat16* q_latent,
                      const __nv_bfloat16* q_rope, const __nv_bfloat16* cache, const int32_t* pages,
                      int64_t pages_stride, int max_kv, double scale, double* scores, double* value,
                      double* size) {
  const Vector at = vectors[blockIdx.x];
  double* s = scores + int64_t{blockIdx.x} * max_kv;
  const auto cached = [&](int t) {
    const int64_t page = pages[at.seq * pages_stride + t / kPage];
    return cache + (page * kPage + t % kPage) * kCols;
  };
  for (int t = threadIdx.x; t <= at.position; t += blockDim.x) {
    const __nv_bfloat16* k = cached(t);
    double sum = 0;
    for (int d = 0; d < kCols; ++d) {
      const __nv_bfloat16 q = d < kRank ? q_latent[int64_t{at.vector} * kRank + d]
                                        : q_rope[int64_t{at.vector} * 192 + d - kRank];
      sum += double{__bfloat162float(q)} * double{__bfloat162float(k[d])};
    }
    s[t] = sum * scale;
  }
  __syncthreads();
  __shared__ double tops[256], sums[256];
  double best = -INFINITY;
  for (int t = threadIdx.x; t <= at.position; t += blockDim.x) best = fmax(best, s[t]);
  tops[threadIdx.x] = best;
  __syncthreads();
  for (int i = 0; i < blockDim.x; ++i) best = fmax(best, tops[i]);
  double total = 0;
  for (int t = threadIdx.x; t <= at.position; t += blockDim.x) total += s[t] = exp(s[t] - best);
  sums[threadIdx.x] = total;
  __syncthreads();
  total = 0;
  for (int i = 0; i < blockDim.x; ++i) total += sums[i];
  for (int d = threadIdx.x; d < kRank; d += blockDim.x) {
    double mean = 0, absolute = 0;
    for (int t = 0; t <= at.position; ++t) {
      const double product = s[t] * double{__bfloat162float(cached(t)[d])};
      mean += product, absolute += fabs(product);
    }
    value[int64_t{blockIdx.x} * kRank + d] = mean / total;
    size[int64_t{blockIdx.x} * kRank + d] = absolute / total;
  }
}

// Compares with the formula, at most `most` vectors; the largest error is in units of the allowed
// one.
void check_attend(Machine& m, const std::string& what, World& w, size_t most = 600) {
  std::vector<Vector> some = w.vectors;
  if (some.size() > most) {
    std::mt19937 random(3);
    std::shuffle(some.begin(), some.end() - 1, random);
    some.erase(some.begin(), some.end() - static_cast<std::ptrdiff_t>(most));
  }
  const size_t n = some.size();
  std::vector<double> want(n * kRank), size(n * kRank);
  if (n > 0) {
    Vector* list;
    double *scores, *value, *sizes;
    check(cudaMalloc(&list, n * sizeof(Vector)), "allocating");
    check(cudaMalloc(&scores, n * static_cast<size_t>(w.max_kv) * 8), "allocating");
    check(cudaMalloc(&value, n * kRank * 8), "allocating");
    check(cudaMalloc(&sizes, n * kRank * 8), "allocating");
    check(cudaMemcpy(list, some.data(), n * sizeof(Vector), cudaMemcpyHostToDevice), "copying");
    naive<<<static_cast<unsigned>(n), 256>>>(
        list, static_cast<const __nv_bfloat16*>(w.q_latent.data),
        static_cast<const __nv_bfloat16*>(w.q_rope().data), w.values, w.batch.pages.as<int32_t>(),
        w.batch.pages.row_stride, w.max_kv, static_cast<double>(w.spec.scale), scores, value,
        sizes);
    check(cudaDeviceSynchronize(), "running the naive kernel");
    want = host<double>(value, static_cast<int64_t>(n * kRank));
    size = host<double>(sizes, static_cast<int64_t>(n * kRank));
    cudaFree(list), cudaFree(scores), cudaFree(value), cudaFree(sizes);
  }
  const auto run = [&] {
    poison(w.out);
    m.begin_step(w);
    m.attend(w, w.kvs[0]);
    check(cudaDeviceSynchronize(), "attending");
    return host<uint16_t>(w.out.data, w.out.elements());
  };
  const std::vector<uint16_t> got = run();
  const auto value_of = [](uint16_t bits) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float f;
    memcpy(&f, &wide, 4);
    return static_cast<double>(f);
  };
  double worst = 0, squares = 0, all = 0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t c = 0; c < kRank; ++c) {
      const double x = value_of(got[static_cast<size_t>(some[i].vector) * kRank + c]);
      const double y = want[i * kRank + c];
      const double exactness = (0x1p-8 + 0x1p-13) * size[i * kRank + c];
      const double error = std::abs(x - y) / (exactness + 0x1p-8 * (std::abs(y) + exactness));
      worst = error <= worst ? worst : error;  // NaN sticks
      squares += (x - y) * (x - y), all += y * y;
    }
  }
  bool padded = true, unwritten = false;
  for (size_t i = 0; i < got.size(); ++i) {
    unwritten |= std::isnan(value_of(got[i]));
    if (i >= w.vectors.size() * kRank) padded &= got[i] == 0;
  }
  bool same = true;
  for (int i = 0; i < 3; ++i) same &= run() == got;
  report(worst <= 1 && padded && !unwritten && same,
         fmt::format("{}: heads {} vectors {}: error {:.3f} of bound, relative {:.2e}{}{}{}", what,
                     w.spec.heads, w.vectors.size(), worst,
                     std::sqrt(squares / std::max(all, 1e-30)), unwritten ? ", UNWRITTEN" : "",
                     padded ? "" : ", PADDING NOT ZERO", same ? "" : ", SECOND RUN DIFFERS"));
}

void check_heads(int heads, int rows, int in, int features) {
  const Tensor x = random(DType::kBF16, {int64_t{rows} * heads, in}, 1, 1, 64);
  const Tensor out = make(DType::kBF16, {int64_t{rows} * heads, features});
  Linear w{.weight = random(DType::kBF16, {heads, features, in}, 2), .experts = heads};
  w.weight.row_stride = int64_t{features} * in;
  Tensor scratch = make(DType::kU8, {static_cast<int64_t>(HeadProducts::kScratchBytes)});
  HeadProducts products(static_cast<std::byte*>(scratch.data), false);
  const auto xs = host<uint16_t>(x.data, x.rows() * x.row_stride);
  const auto ws = host<uint16_t>(w.weight.data, int64_t{heads} * features * in);
  const auto number = [](uint16_t bits) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float f;
    memcpy(&f, &wide, 4);
    return static_cast<double>(f);
  };
  for (const bool tiles : {true, false}) {
    poison(out);
    if (tiles)
      heads_by_tiles(out, x, w, nullptr);
    else
      products.product(out, x, w, nullptr);
    check(cudaDeviceSynchronize(), "multiplying");
    const auto got = host<uint16_t>(out.data, out.elements());
    double worst = 0;
    std::mt19937 random(5);
    for (int i = 0; i < 4000; ++i) {
      const int64_t v = random() % (static_cast<unsigned>(rows) * static_cast<unsigned>(heads));
      const int64_t f = random() % static_cast<unsigned>(features), h = v % heads;
      double y = 0, size = 0;
      for (int k = 0; k < in; ++k) {
        const double a = number(xs[static_cast<size_t>(v * x.row_stride + k)]) *
                         number(ws[static_cast<size_t>((h * features + f) * in + k)]);
        y += a, size += std::abs(a);
      }
      const double error = std::abs(number(got[static_cast<size_t>(v * features + f)]) - y) /
                           (0x1p-8 * std::abs(y) + in * 0x1p-22 * size);
      worst = error <= worst ? worst : error;
    }
    report(worst <= 1,
           fmt::format("heads_linear {}: {} rows, {} heads, {} to {}: {:.3f} of bound",
                       tiles ? "by tiles" : "chosen", rows, heads, in, features, worst));
  }
  for (const Tensor& t : {x, out, w.weight, scratch}) cudaFree(t.data);
}

void check_all(Machine& m, const std::string& mode) {
  const std::vector<Piece> decode = {{0, 1},   {62, 1},  {63, 1},  {64, 1},    {130, 0},
                                     {500, 1}, {127, 1}, {255, 1}, {20000, 1}, {3000, 1}};
  const std::vector<Piece> few = {{0, 2}, {100, 3}, {4000, 4}, {63, 1}, {62, 2}, {0, 1}};
  const std::vector<Piece> chunks = {{0, 1},   {0, 300},  {1000, 100}, {64, 64},
                                     {63, 70}, {2000, 1}, {0, 128},    {777, 1}};
  for (const Cache cache : kCaches) {
    const std::string kind = fmt::format("{}, {}", mode, name_of(cache));
    for (const int heads : {1, 16, 20, 32, 64, 128}) {
      for (const auto& [what, pieces] :
           {std::pair{"decode", decode}, std::pair{"few rows", few}, std::pair{"chunks", chunks}}) {
        World w(cache, heads, pieces, 1, 3);
        check_attend(m, fmt::format("{} {}", kind, what), w);
      }
    }
    World many(cache, 16, std::vector<Piece>(300, Piece{333, 1}), 1, 0);
    check_attend(m, kind + " many", many);
    World nothing(cache, 16, {{5, 0}}, 1, 2);
    check_attend(m, kind + " nothing", nothing);
  }
}

// Times one kind of cache, or, without `only`, both.
void time_attend(Machine& m, const std::string& what, int heads, const std::vector<Piece>& pieces,
                 int layers, int rounds = 1, std::optional<Cache> only = std::nullopt) {
  if (!only) {
    for (const Cache cache : kCaches) time_attend(m, what, heads, pieces, layers, rounds, cache);
    return;
  }
  World w(*only, heads, pieces, layers);
  m.begin_step(w);
  m.attend(w, w.kvs[0]);
  check(cudaStreamSynchronize(m.stream), "warming up");
  const double us = graph_us(
                        [&] {
                          for (int i = 0; i < rounds; ++i)
                            for (const KvLayer& kv : w.kvs) m.attend(w, kv);
                        },
                        m.stream, 9) /
                    layers / rounds;
  const double flops = w.pairs * 2 * (kCols + kRank);
  fmt::print(
      "{:<36} {:<8} {:9.1f} us {:7.0f} GB/s {:5.1f} % of {:.2f} TB/s {:7.1f} TFLOP/s {:5.1f} % of "
      "790\n",
      what, name_of(*only), us, w.bytes / us / 1e3, 1e8 * w.bytes / us / read_limit,
      read_limit / 1e12, flops / us / 1e6, 1e8 * flops / us / kMatrixLimit);
}

void time_heads(int heads, int rows, int in, int features) {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "creating a stream");
  const Tensor x = random(DType::kBF16, {int64_t{rows} * heads, in}, 1);
  const Tensor out = make(DType::kBF16, {int64_t{rows} * heads, features});
  constexpr int kLayers = 8;  // weights of more layers than the L2 holds
  std::vector<Linear> ws;
  for (unsigned l = 0; l < kLayers; ++l)
    ws.push_back({.weight = random(DType::kBF16, {heads, features, in}, 2 + l), .experts = heads});
  Tensor scratch = make(DType::kU8, {static_cast<int64_t>(HeadProducts::kScratchBytes)});
  HeadProducts products(static_cast<std::byte*>(scratch.data), false);
  const auto timed = [&](auto run) {
    for (const Linear& w : ws) run(w);
    check(cudaStreamSynchronize(stream), "warming up");
    return graph_us(
               [&] {
                 for (const Linear& w : ws) run(w);
               },
               stream) /
           kLayers;
  };
  const double tiles = timed([&](const Linear& w) { heads_by_tiles(out, x, w, stream); });
  const double chosen = timed([&](const Linear& w) { products.product(out, x, w, stream); });
  const double library = timed([&](const Linear& w) { products.by_library(out, x, w, stream); });
  const double elements =
      double{1} * rows * heads * (in + features) + double{1} * heads * in * features;
  const double flops = 2.0 * rows * heads * in * features;
  fmt::print(
      "heads_linear {:>5} rows, {} heads, {} to {}: tiles {:8.1f} us, cuBLASLt {:8.1f} us, "
      "chosen {:8.1f} us, {:.0f} GB/s, {:.0f} TFLOP/s\n",
      rows, heads, in, features, tiles, library, chosen, 2 * elements / chosen / 1e3,
      flops / chosen / 1e6);
  for (const Tensor& t : {x, out, scratch}) cudaFree(t.data);
  for (const Linear& w : ws) cudaFree(w.weight.data);
}

void time_store(Machine& m, Cache cache, int heads, int rows) {
  World w(cache, heads, {{1000, rows}}, 8);
  const Tensor kv = random(DType::kF32, {rows, kCols}, 4), norm = random(DType::kF32, {kRank}, 5);
  const Tensor speeds = random(DType::kF32, {kRope / 2}, 6);
  const double us = graph_us(
                        [&] {
                          for (const KvLayer& layer : w.kvs)
                            mla_store(w.q.reshaped({rows, heads * int64_t{192}}), kv,
                                      {.weight = norm, .eps = 1e-6f}, w.spec, w.batch, layer,
                                      speeds.as<float>(), m.stream);
                        },
                        m.stream) /
                    8;
  fmt::print("mla_store {:>5} rows, {} heads, {}: {:8.1f} us\n", rows, heads, name_of(cache), us);
  for (const Tensor& t : {kv, norm, speeds}) cudaFree(t.data);
}

void time_absorbed(Machine& m) {
  const auto same = [](int n, int length, int rows) {
    return std::vector<Piece>(static_cast<size_t>(n), {length - rows, rows});
  };
  time_attend(m, "128 heads, 128 x 4K", 128, same(128, 4096, 1), 2);
  time_attend(m, "128 heads, 128 x 4K, 2 rows", 128, same(128, 4096, 2), 2);
  time_attend(m, "128 heads, 32 x 32K", 128, same(32, 32768, 1), 1, 2);
  time_attend(m, "64 heads, 64 x 8K", 64, same(64, 8192, 1), 2);
  time_attend(m, "32 heads, 64 x 8K", 32, same(64, 8192, 1), 2);
  time_attend(m, "32 heads, 128 x 4K", 32, same(128, 4096, 1), 2);
  time_attend(m, "32 heads, 64 x 8K, 2 rows", 32, same(64, 8192, 2), 2);
  time_attend(m, "32 heads, 64 x 8K, 3 rows", 32, same(64, 8192, 3), 2);
  time_attend(m, "16 heads, 64 x 8K", 16, same(64, 8192, 1), 2);
  time_attend(m, "16 heads, 128 x 4K", 16, same(128, 4096, 1), 2);
  time_attend(m, "16 heads, 32 x 8K", 16, same(32, 8192, 1), 4);
  time_attend(m, "16 heads, 32 x 8K, 4 rows", 16, same(32, 8192, 4), 4);
  time_attend(m, "16 heads, 1 x 1K", 16, same(1, 1024, 1), 64);
  time_attend(m, "128 heads, 1 x 128K", 128, same(1, 131072, 1), 2);
  time_attend(m, "prefill, 128 heads, 8K", 128, {{0, 8192}}, 1);
  time_attend(m, "prefill, 16 heads, 8K", 16, {{0, 8192}}, 1);
  time_attend(m, "prefill, 128 heads, 2K after 6K", 128, {{6144, 2048}}, 1);
}

void time_products(Machine& m) {
  for (const int heads : {16, 128}) {
    for (const int rows : {1, 128, 8192}) {
      time_heads(heads, rows, 128, 512);
      time_heads(heads, rows, 512, 128);
    }
  }
  for (const Cache cache : kCaches)
    for (const int rows : {1, 128, 8192}) time_store(m, cache, 128, rows);
}

}  // namespace
}  // namespace skiff::cuda::bench

int main(int argc, char** argv) {
  using namespace skiff::cuda::bench;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  Machine machine(false), whole(true);
  check_all(machine, "cut");
  check_all(whole, "whole");
  for (const int rows : {1, 5, 64, 200}) {
    check_heads(16, rows, 128, 512);
    check_heads(8, rows, 512, 128);
  }
  check_expanded(machine);
  fmt::print("{} cases checked against the formula, {} failures\n", checks, failures);
  if (failures > 0) return 1;
  if (argc > 1 && std::string(argv[1]) == "check") return 0;
  read_limit = skiff::device_read_bandwidth({skiff::Device::kCuda, 0});
  const std::string what = argc > 1 ? argv[1] : "all";
  if (what != "absorbed") time_expanded(machine);
  if (what == "expanded") return 0;
  time_absorbed(machine);
  if (what != "absorbed") time_products(machine);
  return 0;
}

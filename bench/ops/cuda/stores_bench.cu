// bench/ops/cuda/stores_bench.cu -- the small kernels of a decode step around attention: what
// rotates and stores queries, keys and values, the parts of latent attention and the products of
// its heads, norms and activations. They are latency and little else, so each is timed behind a
// kernel that reads weights, as in a step, and costs what it adds to that kernel. What stores is
// compared with the formula in double first; the others have checks in bench_mla and bench_rows. A
// digest of what was written tells two versions apart where their sums have the same order.
// Arguments: the numbers of rows.
#include <fmt/format.h>

#include <bit>
#include <cstdlib>

#include "mla_world.cuh"
#include "ops/cuda/attention/store.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/mla/store.h"
#include "ops/cuda/rows/rows.h"

namespace skiff::cuda::bench {

int checks = 0, failures = 0;
void report(bool good, const std::string& what) {
  ++checks;
  if (good) return;
  ++failures;
  fmt::print("FAIL {}\n", what);
}

namespace {

constexpr int kRepeats = 24, kMostDecoded = 512;
constexpr int64_t kWeightBytes = 12 << 20;

// The product before: `early` lets the next kernel start behind its own wait, as products of ours
// do, and else at its end, as a library's does.
__global__ void __launch_bounds__(256) product_kernel(const uint4* w, uint4* out, bool early) {
  wait_for_previous();
  if (early) let_next_start();
  uint4 sum = {};
  const auto n = static_cast<int>(kWeightBytes / 16), step = static_cast<int>(gridDim.x) * 256;
#pragma unroll 8
  for (int i = static_cast<int>(blockIdx.x) * 256 + static_cast<int>(threadIdx.x); i < n;
       i += step) {
    const uint4 x = __ldcs(w + i);
    sum.x ^= x.x, sum.y ^= x.y, sum.z ^= x.z, sum.w ^= x.w;
  }
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}

uint64_t digest(const std::vector<Tensor>& tensors) {
  uint64_t h = 0xcbf29ce484222325;
  for (const Tensor& t : tensors) {
    const auto words = static_cast<int64_t>(byte_size(t.dtype, t.rows() * t.row_stride) / 4);
    for (const uint32_t word : host<uint32_t>(t.data, words)) h = (h ^ word) * 0x100000001b3;
  }
  return h;
}

class Steps {
 public:
  Steps() {
    check(cudaStreamCreate(&stream_), "starting");
    check(cudaMalloc(&weights_, kRepeats * kWeightBytes), "allocating");
    check(cudaMalloc(&out_, size_t{256} * 16 * 1024), "allocating");
    check(cudaDeviceGetAttribute(&blocks_, cudaDevAttrMultiProcessorCount, 0), "asking");
    allow_shared(product_kernel, kShared);
    for (const bool early : {false, true}) alone_[early] = us([](int) {}, early);
    fmt::print("product alone: {:.2f} us, triggering early {:.2f} us\n", alone_[0], alone_[1]);
  }
  cudaStream_t stream() const { return stream_; }

  // Runs f(layer) once and digests what it writes, then times it behind both kinds of products.
  template <class F>
  void run(const std::string& what, const std::vector<Tensor>& written, F f) {
    f(0);
    check(cudaStreamSynchronize(stream_), "running once");
    const uint64_t bits = digest(written);
    const double late = us(f, false) - alone_[0], early = us(f, true) - alone_[1];
    fmt::print("{:<46} {:016x}  behind a library {:6.2f} us  behind ours {:6.2f} us\n", what, bits,
               late, early);
  }

 private:
  static constexpr size_t kShared = size_t{160} << 10;  // one block on a multiprocessor

  template <class F>
  double us(F f, bool early) {
    const Launch how = {.grid = dim3(static_cast<unsigned>(blocks_)),
                        .block = dim3(256),
                        .shared = kShared,
                        .stream = stream_};
    return graph_us(
               [&] {
                 for (int i = 0; i < kRepeats; ++i) {
                   const auto* w = reinterpret_cast<const uint4*>(weights_ + i * kWeightBytes);
                   if (early)
                     launch(product_kernel, how, w, out_, true);
                   else
                     product_kernel<<<how.grid, how.block, kShared, stream_>>>(w, out_, false);
                   f(i);
                 }
               },
               stream_, 31) /
           kRepeats;
  }

  cudaStream_t stream_{};
  std::byte* weights_{};
  uint4* out_{};
  int blocks_ = 0;
  double alone_[2] = {};
};

// What every kernel costs.
__global__ void nothing_kernel() {
  let_next_start();
  wait_for_previous();
}

std::vector<Piece> decode(int rows, int context) {
  std::vector<Piece> pieces;
  for (int i = 0; i < rows; ++i) pieces.push_back({context + i * 37 % 160, 1});
  return pieces;
}
// So many decode together; more are a prompt.
std::vector<Piece> rows_of(int rows) {
  return rows <= kMostDecoded ? decode(rows, 30) : std::vector<Piece>{{30, rows}};
}
// Sequences of several rows and of none, and padding behind them.
const std::vector<Piece> kRagged = {{120, 1}, {5, 3}, {64, 0}, {63, 2}, {100, 1}};
constexpr int kPadding = 3;

double number(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Where a row's vector lies in a cache, counted in positions; -1 for padding.
std::vector<int64_t> places(const World& w) {
  const auto pages = host<int32_t>(w.batch.pages.data, w.batch.pages.elements());
  std::vector<int64_t> at(static_cast<size_t>(w.batch.num_tokens), -1);
  for (const Vector& v : w.vectors)
    at[static_cast<size_t>(v.vector) / static_cast<size_t>(w.spec.heads)] =
        int64_t{pages[v.seq * w.batch.pages.row_stride + v.position / kPage]} * kPage +
        v.position % kPage;
  return at;
}

// The rotation of rows at their positions.
struct Rotation {
  std::vector<float> speeds;
  std::vector<int32_t> positions;

  Rotation(const Tensor& speeds, const RaggedBatch& batch)
      : speeds(host<float>(speeds.data, speeds.elements())),
        positions(host<int32_t>(batch.positions.data, batch.num_tokens)) {}
  // The largest error of a pair (a, b) that became (x, y), in units of a rounding to bf16.
  double error(size_t row, size_t pair, double a, double b, double x, double y) const {
    const double angle = static_cast<float>(positions[row]) * speeds[pair];
    const double c = std::cos(angle), s = std::sin(angle),
                 size = 0x1p-20 * (std::abs(a) + std::abs(b));
    const auto off = [&](double got, double want) {
      const double units = std::abs(got - want) / (0x1p-8 * std::abs(want) + size);
      return units >= 0 ? units : INFINITY;
    };
    return std::max(off(x, a * c - b * s), off(y, b * c + a * s));
  }
};

struct Heads {
  const char* name;
  int heads, kv_heads;
  bool sums, norms;
  DType cache;
};

// Checks rotated rows, and that a cache of bf16 holds keys and values as they stand there.
void check_gqa_store(const std::string& what, const World& w, const Heads& h, const Tensor& speeds,
                     const std::vector<uint16_t>& before, const Tensor& qkv, const KvLayer& kv) {
  const Rotation rotation(speeds, w.batch);
  const auto after = host<uint16_t>(qkv.data, qkv.elements());
  const auto at = places(w);
  const auto k = host<uint16_t>(kv.k.data, kv.k.elements()),
             v = host<uint16_t>(kv.v.data, kv.v.elements());
  const auto width = static_cast<size_t>(h.kv_heads) * 128, turned = 128 * size_t(h.heads) + width;
  double worst = 0;
  bool stored = true;
  for (size_t r = 0; r < at.size(); ++r) {
    const uint16_t *x = &before[r * (turned + width)], *y = &after[r * (turned + width)];
    if (at[r] < 0) {
      stored &= std::equal(x, x + turned + width, y);
      continue;
    }
    for (size_t i = 0; i < turned / 2; ++i) {
      const size_t a = i / 64 * 128 + i % 64, b = a + 64;
      worst = std::max(
          worst, rotation.error(r, i % 64, number(x[a]), number(x[b]), number(y[a]), number(y[b])));
    }
    const auto place = static_cast<size_t>(at[r]) * width;
    stored &= std::equal(y + turned - width, y + turned, &k[place]) &&
              std::equal(x + turned, x + turned + width, &v[place]);
  }
  report(worst <= 1 && stored,
         fmt::format("{}: {:.3f} of a rounding{}", what, worst, stored ? "" : ", NOT STORED"));
}

void run_gqa_store(Steps& steps, const Heads& h, const std::vector<Piece>& pieces, int padding) {
  const World w(Cache::kBF16, 1, pieces, 0, padding);
  Gqa spec{.heads = h.heads, .kv_heads = h.kv_heads, .head_dim = 128};
  spec.rope.dim = 128;
  const int rows = w.batch.num_tokens;
  int64_t pages = 3;
  for (const Piece& p : pieces) pages += (p.begin + p.rows + kPage - 1) / kPage;
  const int64_t cols = 128 * (h.heads + 2 * h.kv_heads);
  const Tensor qkv = random(DType::kBF16, {rows, cols}, 1);
  const Tensor sums = random(DType::kF32, {rows, cols}, 2), bias = random(DType::kF32, {cols}, 3);
  const Tensor norm = random(DType::kF32, {128}, 4), speeds = random(DType::kF32, {64}, 5, 0.5f);
  KvLayer kv = {.page_size = kPage, .format = {.dtype = h.cache}};
  for (Tensor* t : {&kv.k, &kv.v}) {
    *t = make(h.cache, {pages, kPage * h.kv_heads * 128});
    t->dim = {pages, kPage, h.kv_heads, 128};
  }
  for (Tensor* t : {&kv.k_scale, &kv.v_scale}) {
    *t = make(DType::kBF16, {pages, h.kv_heads * kPage});
    t->dim = {pages, h.kv_heads, kPage, 1};
  }
  const Biased biased = h.sums ? Biased{sums, bias} : Biased{};
  if (!h.sums && !h.norms && h.cache == DType::kBF16) {
    const auto before = host<uint16_t>(qkv.data, qkv.elements());
    gqa_store(qkv, {}, {}, {}, spec, w.batch, kv, speeds.as<float>(), steps.stream());
    check(cudaStreamSynchronize(steps.stream()), "storing");
    check_gqa_store(fmt::format("gqa_store {}, {} rows", h.name, rows), w, h, speeds, before, qkv,
                    kv);
    fill(qkv, 1);
    check(cudaDeviceSynchronize(), "filling");
  }
  const Norm normed = h.norms ? Norm{.weight = norm, .eps = 1e-6f} : Norm{};
  steps.run(fmt::format("gqa_store {} {}{}, {} rows", h.name, name(h.cache),
                        padding ? " ragged" : "", rows),
            {qkv, kv.k, kv.v, kv.k_scale, kv.v_scale}, [&](int) {
              gqa_store(qkv, biased, normed, normed, spec, w.batch, kv, speeds.as<float>(),
                        steps.stream());
            });
  for (const Tensor& t : {qkv, sums, bias, norm, speeds, kv.k, kv.v, kv.k_scale, kv.v_scale})
    cudaFree(t.data);
}

// Checks rotated queries, and latents and keys in a cache of bf16.
void check_mla_store(const std::string& what, const World& w, const Tensor& speeds,
                     const std::vector<uint16_t>& before, const Tensor& kv, const Tensor& norm) {
  const Rotation rotation(speeds, w.batch);
  const auto after = host<uint16_t>(w.q.data, w.q.elements()),
             cached = host<uint16_t>(w.kvs[0].k.data, w.kvs[0].k.elements());
  const auto latents = host<float>(kv.data, kv.elements()), weight = host<float>(norm.data, kRank);
  const auto at = places(w);
  const auto heads = static_cast<size_t>(w.spec.heads);
  double worst = 0;
  for (size_t r = 0; r < at.size(); ++r) {
    if (at[r] < 0) continue;
    for (size_t i = 0; i < heads * kRope / 2; ++i) {
      const size_t a = (r * heads + i / 32) * 192 + 128 + i % 32 * 2;
      worst = std::max(worst, rotation.error(r, i % 32, number(before[a]), number(before[a + 1]),
                                             number(after[a]), number(after[a + 1])));
    }
    const float* x = &latents[r * kCols];
    const uint16_t* y = &cached[static_cast<size_t>(at[r]) * kCols];
    double squares = 0;
    for (int d = 0; d < kRank; ++d) squares += double{x[d]} * x[d];
    const double scale = 1 / std::sqrt(squares / kRank + 1e-6);
    for (size_t d = 0; d < kRank; ++d) {
      const double want = x[d] * scale * weight[d];
      const double units = std::abs(number(y[d]) - want) / (0x1.01p-8 * std::abs(want) + 0x1p-130);
      worst = units <= worst ? worst : units;  // NaN sticks
    }
    for (size_t i = 0; i < kRope / 2; ++i)
      worst =
          std::max(worst, rotation.error(r, i, x[kRank + 2 * i], x[kRank + 2 * i + 1],
                                         number(y[kRank + 2 * i]), number(y[kRank + 2 * i + 1])));
  }
  report(worst <= 1, fmt::format("{}: {:.3f} of a rounding", what, worst));
}

void run_mla_store(Steps& steps, Cache cache, int heads, const std::vector<Piece>& pieces,
                   int padding) {
  World w(cache, heads, pieces, 1, padding);
  const int rows = w.batch.num_tokens;
  const Tensor kv = random(DType::kF32, {rows, kCols}, 4), norm = random(DType::kF32, {kRank}, 5);
  const Tensor speeds = random(DType::kF32, {kRope / 2}, 6, 0.5f);
  const auto store = [&](int) {
    mla_store(w.q.reshaped({rows, heads * int64_t{192}}), kv, {.weight = norm, .eps = 1e-6f},
              w.spec, w.batch, w.kvs[0], speeds.as<float>(), steps.stream());
  };
  const std::string what = fmt::format("mla_store {} heads {}{}, {} rows", heads, name_of(cache),
                                       padding ? " ragged" : "", rows);
  if (cache == Cache::kBF16) {
    const auto before = host<uint16_t>(w.q.data, w.q.elements());
    store(0);
    check(cudaStreamSynchronize(steps.stream()), "storing");
    check_mla_store(what, w, speeds, before, kv, norm);
  }
  steps.run(what, {w.q, w.kvs[0].k}, store);
  for (const Tensor& t : {kv, norm, speeds}) cudaFree(t.data);
}

// The products of heads alone, latent attention with what puts its parts together, and all that a
// layer does between the projections before and behind.
void run_latent(Steps& steps, Machine& m, Cache cache, int heads, int rows) {
  World w(cache, heads, decode(rows, 920), 4);
  m.stream = steps.stream();
  m.begin_step(w);
  const int64_t vectors = int64_t{rows} * heads;
  const Tensor kv = random(DType::kF32, {rows, kCols}, 4), norm = random(DType::kF32, {kRank}, 5);
  const Tensor speeds = random(DType::kF32, {kRope / 2}, 6, 0.5f);
  std::vector<Linear> absorb, value;
  for (unsigned l = 0; l < 8; ++l) {
    absorb.push_back(
        {.weight = random(DType::kBF16, {heads, kRank, 128}, 20 + l, 0.1f), .experts = heads});
    value.push_back(
        {.weight = random(DType::kBF16, {heads, 128, kRank}, 40 + l, 0.1f), .experts = heads});
  }
  const Tensor values = make(DType::kBF16, {vectors, 128});
  const auto in = [&](int l) {
    m.products->product(w.q_latent, w.q.col_range(0, 128), absorb[static_cast<size_t>(l % 8)],
                        steps.stream());
  };
  const auto out = [&](int l) {
    m.products->product(values, w.out, value[static_cast<size_t>(l % 8)], steps.stream());
  };
  const auto attend = [&](int l) { m.attend(w, w.kvs[static_cast<size_t>(l % 4)]); };
  const auto store = [&](int l) {
    mla_store(w.q.reshaped({rows, heads * int64_t{192}}), kv, {.weight = norm, .eps = 1e-6f},
              w.spec, w.batch, w.kvs[static_cast<size_t>(l % 4)], speeds.as<float>(),
              steps.stream());
  };
  for (const int l : {0, 1}) in(l), attend(l), out(l);  // algorithms are chosen outside a recording
  check(cudaStreamSynchronize(steps.stream()), "warming up");
  const auto name = [&](const char* what) {
    return fmt::format("{} {} heads {}, {} rows", what, heads, name_of(cache), rows);
  };
  if (cache == Cache::kRows) {
    const auto at = [](std::vector<Linear>& ws, int l) -> Linear& {
      return ws[static_cast<size_t>(l % 8)];
    };
    const Tensor q = w.q.col_range(0, 128);
    steps.run(name("heads 128 to 512 by tiles"), {w.q_latent},
              [&](int l) { heads_by_tiles(w.q_latent, q, at(absorb, l), steps.stream()); });
    steps.run(name("heads 512 to 128 by tiles"), {values},
              [&](int l) { heads_by_tiles(values, w.out, at(value, l), steps.stream()); });
    steps.run(name("heads 128 to 512"), {w.q_latent}, in);
    steps.run(name("heads 512 to 128"), {values}, out);
  }
  steps.run(name("latent attention"), {w.out}, attend);
  steps.run(name("all of a layer"), {values}, [&](int l) { store(l), in(l), attend(l), out(l); });
  for (const Tensor& t : {kv, norm, speeds, values}) cudaFree(t.data);
  for (size_t l = 0; l < 8; ++l) cudaFree(absorb[l].weight.data), cudaFree(value[l].weight.data);
}

void run_rows(Steps& steps, int64_t hidden, int64_t width, int64_t rows) {
  const Tensor residual = random(DType::kF32, {rows, hidden}, 1);
  const Tensor delta = random(DType::kBF16, {rows, hidden}, 2, 0x1p-20f);
  const Tensor weight = random(DType::kF32, {hidden}, 3), out = make(DType::kBF16, {rows, hidden});
  const Tensor gate_up = random(DType::kBF16, {rows, 2 * width}, 4);
  const Tensor act = make(DType::kBF16, {rows, width});
  steps.run(fmt::format("add_norm {}, {} rows", hidden, rows), {residual, out}, [&](int) {
    add_norm(out, residual, delta, {.weight = weight, .eps = 1e-6f}, steps.stream());
  });
  steps.run(fmt::format("gated_act {}, {} rows", width, rows), {act},
            [&](int) { gated_act(act, gate_up, Act::kSilu, steps.stream()); });
  for (const Tensor& t : {residual, delta, weight, out, gate_up, act}) cudaFree(t.data);
}

int run(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  std::vector<int> rows;
  for (int i = 1; i < argc; ++i) rows.push_back(std::atoi(argv[i]));
  if (rows.empty()) rows = {1, 32, 128, 256};
  Steps steps;
  steps.run("nothing", {}, [&](int) {
    launch(nothing_kernel, {.grid = dim3(128), .block = dim3(256), .stream = steps.stream()});
  });
  const Heads all[] = {{"16/2", 16, 2, false, false, DType::kBF16},
                       {"16/2 biased", 16, 2, true, false, DType::kBF16},
                       {"16/2 normed", 16, 2, false, true, DType::kBF16},
                       {"16/2", 16, 2, false, false, DType::kF8E4M3},
                       {"32/8", 32, 8, false, false, DType::kBF16}};
  for (const Heads& h : all) {
    run_gqa_store(steps, h, kRagged, kPadding);
    for (const int n : rows) run_gqa_store(steps, h, rows_of(n), 0);
  }
  for (const Cache cache : kCaches)
    for (const int heads : {32, 128}) {
      run_mla_store(steps, cache, heads, kRagged, kPadding);
      for (const int n : rows) run_mla_store(steps, cache, heads, rows_of(n), 0);
    }
  Machine machine(false);
  for (const Cache cache : kCaches)
    for (const int heads : {32, 128})
      for (const int n : rows)
        if (n <= kMostDecoded) run_latent(steps, machine, cache, heads, n);
  for (const int n : rows) run_rows(steps, 8192, 7168, n);
  for (const int n : rows) run_rows(steps, 7168, 2048, n);
  fmt::print("{} stores checked against the formula, {} failures\n", checks, failures);
  return failures != 0;
}

}  // namespace
}  // namespace skiff::cuda::bench

int main(int argc, char** argv) {
  using namespace skiff::cuda::bench;
  return status_of(run, argc, argv);
}

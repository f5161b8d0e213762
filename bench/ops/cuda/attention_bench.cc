// Measures attention on the device. Every kernel is first compared with the formula in double; its
// speed is measured only if no check failed.
//   attention_bench all | check | decode | prefill | caches [part of a case's name [piece]]
// With a piece (PlanShape::piece; 4 as served) a row's bits do not depend on the rest of the step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "attention_naive.h"
#include "ops/cuda/attention/args_of.h"
#include "ops/cuda/attention/attend.h"
#include "ops/cuda/attention/store.h"
#include "ops/cuda/check.h"
#include "ops/kv_quant.h"
#include "tensor/convert.h"

namespace skiff::bench {
namespace {

using cuda::check;

struct Piece {
  int begin, rows;
};

template <class T>
class OnDevice {
 public:
  explicit OnDevice(size_t n) : n_(n) {
    check(cudaMalloc(&data_, std::max<size_t>(n, 1) * sizeof(T)), "allocating");
  }
  explicit OnDevice(const std::vector<T>& v) : OnDevice(v.size()) {
    check(cudaMemcpy(data_, v.data(), n_ * sizeof(T), cudaMemcpyHostToDevice), "copying");
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice(OnDevice&& o) noexcept : data_(std::exchange(o.data_, nullptr)), n_(o.n_) {}
  ~OnDevice() { cudaFree(data_); }
  T* data() const { return data_; }
  size_t size() const { return n_; }
  std::vector<T> host() const {
    std::vector<T> v(n_);
    check(cudaMemcpy(v.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost), "copying");
    return v;
  }

 private:
  T* data_ = nullptr;
  size_t n_;
};

Tensor tensor(void* data, DType dtype, std::initializer_list<int64_t> shape) {
  Tensor t = host_tensor(data, dtype, shape);
  t.device = {Device::kCuda, 0};
  return t;
}

Gqa gqa(int heads, int kv_heads, int head_dim, int window = 0, int rope_dim = -1,
        bool interleaved = false) {
  Gqa spec{.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim};
  spec.rope.dim = rope_dim < 0 ? head_dim : rope_dim;
  spec.rope.interleaved = interleaved;
  spec.window = window;
  return spec;
}

// A step over random caches, `layers` of them.
struct World {
  World(const Gqa& spec, DType act, DType cache, int page_size, const std::vector<Piece>& pieces,
        int padding = 0, int layers = 1)
      : spec(spec), act(act), cache(cache) {
    std::mt19937 random(7);
    int total = 3;
    size_t width = 1;
    for (const Piece& p : pieces) {
      const int n = (p.begin + p.rows + page_size - 1) / page_size;
      total += n, width = std::max(width, static_cast<size_t>(n));
    }
    std::vector<int32_t> free(static_cast<size_t>(total));
    std::iota(free.begin(), free.end(), 0);
    std::ranges::shuffle(free, random);
    row_start = {0};
    for (size_t s = 0; s < pieces.size(); ++s) {
      const Piece& p = pieces[s];
      for (int i = 0; i < (p.begin + p.rows + page_size - 1) / page_size; ++i) {
        page_table.push_back(free.back());
        free.pop_back();
      }
      page_table.resize((s + 1) * width, -1);
      for (int r = 0; r < p.rows; ++r) {
        rows.push_back({static_cast<int>(rows.size()), static_cast<int>(s), p.begin + r});
        positions.push_back(p.begin + r);
      }
      row_start.push_back(static_cast<int32_t>(positions.size()));
      kv_len.push_back(p.begin + p.rows);
      max_kv = std::max(max_kv, p.begin + p.rows);
    }
    tokens = static_cast<int>(positions.size()) + padding;
    positions.resize(static_cast<size_t>(tokens), 5);
    ints.reserve(4);
    const auto up = [&](const std::vector<int32_t>& v, std::initializer_list<int64_t> shape) {
      return tensor(ints.emplace_back(v).data(), DType::kI32, shape);
    };
    const auto seqs = static_cast<int64_t>(pieces.size());
    batch.num_seqs = static_cast<int>(seqs);
    batch.num_tokens = tokens;
    batch.positions = up(positions, {tokens});
    batch.row_start = up(row_start, {seqs + 1});
    batch.kv_len = up(kv_len, {seqs});
    batch.pages = up(page_table, {seqs, static_cast<int64_t>(width)});
    batch.host_row_start = row_start;
    batch.host_kv_len = kv_len;
    const size_t layer = static_cast<size_t>(total) * static_cast<size_t>(page_size) *
                         static_cast<size_t>(spec.kv_heads * spec.head_dim);
    for (int l = 0; l < layers; ++l) {
      KvLayer& kv = kvs.emplace_back();
      kv.page_size = page_size;
      kv.format = kv_format(cache);
      for (Tensor* t : {&kv.k, &kv.v}) {
        const size_t size = byte_size(cache, static_cast<int64_t>(layer));
        bytes.emplace_back(size);
        *t = tensor(bytes.back().data(), cache, {total, page_size, spec.kv_heads, spec.head_dim});
        const auto seed = static_cast<unsigned>(bytes.size());
        if (kv.format.quantized())
          fill_random(t->data, size / 4, false, 1, seed);
        else
          fill_random(t->data, layer, cache == DType::kBF16, 1, seed);
        if (cache == DType::kF8E4M3) drop_nan_codes(bytes.back().data(), size);
      }
      if (kv.format.quantized()) add_scales(kv, total, random);
    }
    const int64_t cols = (spec.heads + 2 * spec.kv_heads) * spec.head_dim;
    const int64_t out_cols = spec.heads * spec.head_dim;
    bytes.emplace_back(static_cast<size_t>(tokens * cols) * skiff::bytes(act));
    qkv = tensor(bytes.back().data(), act, {tokens, cols});
    fill_random(qkv.data, static_cast<size_t>(tokens * cols), act == DType::kBF16, 1.5, 99);
    bytes.emplace_back(static_cast<size_t>(tokens * out_cols) * skiff::bytes(act));
    out = tensor(bytes.back().data(), act, {tokens, out_cols});
    q = qkv.col_range(0, out_cols);
  }
  // Scales that make values of about 1, and zero points.
  void add_scales(KvLayer& kv, int total, std::mt19937& random) {
    const int numbers = kv_scales(kv.format, spec.head_dim);
    const double largest = cache == DType::kI8 ? 127 : cache == DType::kU4 ? 8 : 448;
    std::vector<uint16_t> host(static_cast<size_t>(total) * static_cast<size_t>(kv.page_size) *
                               static_cast<size_t>(spec.kv_heads * numbers));
    for (Tensor* t : {&kv.k_scale, &kv.v_scale}) {
      for (size_t i = 0; i < host.size(); ++i) {
        const auto draw = static_cast<double>(random() % 16);
        const double number = kv.format.zero && i % 2 == 1 ? draw : (4 + draw) / 8 / largest;
        host[i] = to_bf16(static_cast<float>(number)).bits;
      }
      bytes.emplace_back(2 * host.size());
      *t = tensor(bytes.back().data(), DType::kBF16, {total, spec.kv_heads, kv.page_size, numbers});
      check(cudaMemcpy(t->data, host.data(), 2 * host.size(), cudaMemcpyHostToDevice), "copying");
    }
  }
  std::vector<double> read(const Tensor& t) const {  // any shape
    const size_t n = static_cast<size_t>(t.elements());
    std::vector<double> v(n);
    std::vector<uint8_t> raw(n * skiff::bytes(t.dtype));
    check(cudaMemcpy2D(raw.data(), static_cast<size_t>(t.cols()) * skiff::bytes(t.dtype), t.data,
                       static_cast<size_t>(t.row_stride) * skiff::bytes(t.dtype),
                       static_cast<size_t>(t.cols()) * skiff::bytes(t.dtype),
                       static_cast<size_t>(t.rows()), cudaMemcpyDeviceToHost),
          "reading back");
    for (size_t i = 0; i < n; ++i) {
      float f;
      if (t.dtype == DType::kF32) {
        std::memcpy(&f, &raw[4 * i], 4);
      } else {
        uint32_t b = static_cast<uint32_t>(raw[2 * i] | raw[2 * i + 1] << 8) << 16;
        std::memcpy(&f, &b, 4);
      }
      v[i] = static_cast<double>(f);
    }
    return v;
  }
  void poison() const {
    check(cudaMemset(out.data, 0xff, static_cast<size_t>(out.elements()) * skiff::bytes(act)),
          "poisoning");
  }

  Gqa spec;
  DType act, cache;
  std::vector<NaiveRow> rows;
  std::vector<int32_t> positions, row_start, kv_len, page_table;
  int max_kv = 0, tokens = 0;
  RaggedBatch batch;
  std::vector<OnDevice<int32_t>> ints;
  std::vector<OnDevice<uint8_t>> bytes;
  std::vector<KvLayer> kvs;
  Tensor qkv, q, out;
};

struct Device1 {
  explicit Device1(int piece)
      : piece(piece), limits{.max_seqs = 512, .max_tokens = 40000, .piece = piece} {
    check(cudaStreamCreate(&stream), "creating a stream");
    const auto need = cuda::Attention::bytes(limits);
    check(cudaMalloc(&device, need.device), "allocating");
    check(cudaMallocHost(&pinned, need.pinned), "allocating");
    check(cudaMalloc(&scratch.data, scratch.bytes), "allocating");
    restart();
    fmt::print("attention memory: {} KB device, {} KB pinned\n", need.device / 1024,
               need.pinned / 1024);
  }
  // Forgets all plans: one that a graph was captured with keeps its place, and there are few.
  void restart() {
    check(cudaDeviceSynchronize(), "waiting");
    attention.reset();
    attention = std::make_unique<cuda::Attention>(limits, device, pinned, stream, false, scratch);
  }
  int piece;
  cuda::Attention::Limits limits;
  cudaStream_t stream{};
  std::byte *device{}, *pinned{};
  cuda::WidenScratch scratch = {.bytes = size_t{240} << 20};  // as CudaOps has
  std::unique_ptr<cuda::Attention> attention;
};

int checks = 0, failures = 0;
void report(bool good, const std::string& what) {
  ++checks;
  if (!good) ++failures;
  fmt::print("{} {}\n", good ? "ok  " : "FAIL", what);
}

double rounding(DType t) { return t == DType::kBF16 ? 0x1p-8 : 0x1p-24; }

using Run = std::function<void(World&)>;

// Returns the largest error in units of the allowed one, which is `exactness` times the weighted
// sum of absolute values, plus one rounding of the result. exact(n): values of bytes are exact for
// sequences with n rows.
void check_attend(const std::string& what, World& w, double exactness, const Run& run,
                  const std::function<bool(int)>& exact = {}, size_t most_rows = 300) {
  std::vector<NaiveRow> rows = w.rows;
  for (NaiveRow& r : rows) {
    const auto s = static_cast<size_t>(r.seq);
    r.exact = exact && exact(w.row_start[s + 1] - w.row_start[s]);
  }
  if (rows.size() > most_rows) {
    std::mt19937 random(3);
    std::shuffle(rows.begin(), rows.end() - 1, random);
    rows.erase(rows.begin(), rows.end() - static_cast<std::ptrdiff_t>(most_rows));
  }
  const size_t cols = static_cast<size_t>(w.out.cols()), n = rows.size();
  OnDevice<NaiveRow> listed(rows);
  OnDevice<double> scores(n * static_cast<size_t>(w.spec.heads * w.max_kv)), value(n * cols),
      size(n * cols);
  if (n > 0) {
    naive_attend({.rows = cuda::rows_of(w.batch),
                  .cache = cuda::cache_of(w.kvs[0]),
                  .q = w.q.data,
                  .q_stride = w.q.row_stride,
                  .bf16 = w.act == DType::kBF16,
                  .group = w.spec.heads / w.spec.kv_heads,
                  .head_dim = w.spec.head_dim,
                  .window = w.spec.window},
                 listed.data(), static_cast<int>(n), w.max_kv, scores.data(), value.data(),
                 size.data());
  }
  w.poison();
  run(w);
  check(cudaDeviceSynchronize(), "attending");
  const std::vector<double> got = w.read(w.out), want = value.host(), sizes = size.host();
  double worst = 0, squares = 0, total = 0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t c = 0; c < cols; ++c) {
      const double x = got[static_cast<size_t>(rows[i].row) * cols + c], y = want[i * cols + c];
      const double bound = exactness * sizes[i * cols + c] +
                           rounding(w.act) * (std::abs(y) + exactness * sizes[i * cols + c]);
      const double error = std::abs(x - y) / bound;
      worst = error <= worst ? worst : error;  // NaN sticks
      squares += (x - y) * (x - y), total += y * y;
    }
  }
  bool unwritten = false;
  for (double x : got) unwritten |= std::isnan(x);
  bool padded = true;
  for (size_t r = w.rows.size(); r < static_cast<size_t>(w.tokens); ++r) {
    for (size_t c = 0; c < cols; ++c) padded &= got[r * cols + c] == 0;
  }
  w.poison();
  run(w);
  check(cudaDeviceSynchronize(), "attending again");
  const bool same = n == 0 || unwritten || w.read(w.out) == got;
  report(worst <= 1 && !unwritten && padded && same,
         fmt::format("{}: heads {}/{} dim {} window {} page {} rows {}: error {:.3f} of bound, "
                     "relative {:.2e}{}{}{}",
                     what, w.spec.heads, w.spec.kv_heads, w.spec.head_dim, w.spec.window,
                     w.kvs[0].page_size, w.rows.size(), worst, std::sqrt(squares / total),
                     unwritten ? ", UNWRITTEN" : "", padded ? "" : ", PADDING NOT ZERO",
                     same ? "" : ", SECOND RUN DIFFERS"));
}

void check_store(const Gqa& spec, DType act, DType cache, int page_size, bool norms, int position) {
  World w(spec, act, cache, page_size, {{0, 1}, {62, 3}, {position, 2}, {130, 0}, {5, 17}, {63, 1}},
          3);
  std::vector<float> weight(static_cast<size_t>(spec.head_dim) * 2);
  std::mt19937 random(5);
  for (float& x : weight) x = std::uniform_real_distribution<float>(-2, 2)(random);
  const OnDevice<float> weights(weight), speeds(rope_frequencies(spec.rope));
  Norm q, k;
  if (norms) {
    q = {.weight = tensor(weights.data(), DType::kF32, {spec.head_dim}), .eps = 1e-5f};
    k = {.weight = tensor(weights.data() + spec.head_dim, DType::kF32, {spec.head_dim}),
         .eps = 1e-3f};
  }
  const std::vector<double> before = w.read(w.qkv);
  cuda::gqa_store(w.qkv, {}, q, k, spec, w.batch, w.kvs[0], speeds.data(), nullptr);
  check(cudaDeviceSynchronize(), "storing");
  const std::vector<double> after = w.read(w.qkv), keys = w.read(w.kvs[0].k),
                            values = w.read(w.kvs[0].v);
  const std::vector<float> speed = rope_frequencies(spec.rope);
  const size_t d = static_cast<size_t>(spec.head_dim), half = speed.size();
  const size_t cols = static_cast<size_t>(w.qkv.cols());
  double worst = 0;
  bool exact = true;
  for (size_t r = 0; r < static_cast<size_t>(w.tokens); ++r) {
    for (size_t h = 0; h < cols / d; ++h) {
      const size_t at = r * cols + h * d;
      const bool is_q = h < static_cast<size_t>(spec.heads);
      const bool is_v = h >= static_cast<size_t>(spec.heads + spec.kv_heads);
      if (r >= w.rows.size() || is_v) {
        for (size_t i = 0; i < d; ++i) exact &= after[at + i] == before[at + i];
      } else {
        double squares = 0;
        for (size_t i = 0; i < d; ++i) squares += before[at + i] * before[at + i];
        std::vector<double> x(before.begin() + static_cast<std::ptrdiff_t>(at),
                              before.begin() + static_cast<std::ptrdiff_t>(at + d));
        const double eps = is_q ? 1e-5 : 1e-3;
        for (size_t i = 0; norms && i < d; ++i) {
          x[i] *= static_cast<double>(weight[i + (is_q ? 0 : d)]) /
                  std::sqrt(squares / static_cast<double>(d) + eps);
        }
        std::vector<double> y = x, length(d);
        for (size_t i = 0; i < d; ++i) length[i] = std::abs(x[i]);
        for (size_t i = 0; i < half; ++i) {
          const size_t a = spec.rope.interleaved ? 2 * i : i,
                       b = spec.rope.interleaved ? 2 * i + 1 : i + half;
          const double angle =
              static_cast<double>(static_cast<float>(w.rows[r].position) * speed[i]);
          y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
          y[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
          length[a] = length[b] = std::hypot(x[a], x[b]);
        }
        for (size_t i = 0; i < d; ++i) {
          const double bound = (static_cast<double>(d) / 2 + 12) * 2 * 0x1p-24 * length[i];
          const double error =
              std::abs(after[at + i] - y[i]) / (bound + rounding(act) * std::abs(y[i]) + 1e-30);
          worst = error <= worst ? worst : error;
        }
      }
      if (r >= w.rows.size() || is_q) continue;
      const int p = w.rows[r].position;
      const size_t width = w.page_table.size() / w.kv_len.size();
      const size_t page =
          static_cast<size_t>(w.page_table[static_cast<size_t>(w.rows[r].seq) * width +
                                           static_cast<size_t>(p / page_size)]);
      const size_t kv_head = h - static_cast<size_t>(spec.heads + (is_v ? spec.kv_heads : 0));
      const size_t to =
          ((page * static_cast<size_t>(page_size) + static_cast<size_t>(p % page_size)) *
               static_cast<size_t>(spec.kv_heads) +
           kv_head) *
          d;
      for (size_t i = 0; i < d; ++i) {
        float f = static_cast<float>(after[at + i]);
        if (cache == DType::kBF16) f = to_float(to_bf16(f));
        exact &= static_cast<double>(f) == (is_v ? values : keys)[to + i];
      }
    }
  }
  report(
      worst <= 1 && exact,
      fmt::format("store: heads {}/{} dim {} rope {}{} act {} cache {} norms {}: error {:.3f} of "
                  "bound{}",
                  spec.heads, spec.kv_heads, spec.head_dim, spec.rope.dim,
                  spec.rope.interleaved ? "i" : "", name(act), name(cache), norms, worst,
                  exact ? "" : ", NOT EXACT"));
}

const std::vector<Piece> kMixed = {{0, 1},  {62, 1}, {63, 1}, {64, 1},  {130, 0}, {0, 0},
                                   {61, 4}, {0, 65}, {5, 17}, {127, 2}, {200, 1}};
const std::vector<Piece> kDecode = {{0, 1},   {62, 1},  {63, 1},  {64, 1},    {130, 0},
                                    {500, 1}, {127, 1}, {255, 1}, {20000, 1}, {3000, 1}};
const std::vector<Piece> kFew = {{0, 2}, {100, 3}, {4000, 4}, {63, 1}, {62, 2}, {0, 1}};
const std::vector<Piece> kChunks = {{0, 1},     {0, 300},  {1000, 200}, {64, 64}, {63, 130},
                                    {5000, 33}, {2000, 1}, {0, 128},    {0, 129}, {777, 1}};

void check_all(Device1& dev) {
  const DType f = DType::kF32, b = DType::kBF16;
  for (DType act : {f, b}) {
    for (DType cache : {f, b}) {
      for (bool norms : {false, true}) {
        check_store(gqa(4, 2, 64), act, cache, 64, norms, 100000);
        check_store(gqa(3, 1, 8, 0, 8, true), act, cache, 16, norms, 700);
      }
    }
    check_store(gqa(2, 2, 80, 0, 32), act, act, 64, true, 9000);
    check_store(gqa(2, 1, 128, 0, 64, true), act, act, 64, false, 9000);
    check_store(gqa(1, 1, 256), act, act, 16, true, 9000);
    check_store(gqa(8, 1, 8, 0, 2), act, act, 64, false, 9000);
    check_store(gqa(32, 8, 128), act, act, 64, true, 120000);
  }
  const Run generic = [&](World& w) {
    cuda::gqa_attend_generic(w.out, w.q, w.spec, w.batch, w.kvs[0], dev.stream);
  };
  const Run best = [&](World& w) {
    dev.attention->begin_step(w.batch, dev.stream);
    dev.attention->attend(w.out, w.q, w.spec, w.batch, w.kvs[0], dev.stream);
  };
  const auto one = [&](const std::string& what, const Gqa& spec, DType act, DType cache, int page,
                       const std::vector<Piece>& pieces, double exactness, const Run& run) {
    World w(spec, act, cache, page, pieces, 3);
    const cuda::PlanShape shape = {.group = spec.heads / spec.kv_heads,
                                   .decodes_all = dev.piece > 0};
    check_attend(what, w, exactness, run, [&](int rows) {
      const bool bytes = cache == DType::kI8 || cache == DType::kF8E4M3;
      return &run == &best && bytes && !cuda::is_prefilled(shape, rows);
    });
  };
  for (DType act : {f, b}) {
    for (DType cache : {f, b}) {
      one("generic", gqa(4, 2, 32), act, cache, 64, kMixed, 0x1p-14, generic);
      one("generic", gqa(5, 1, 80, 33), act, cache, 16, kMixed, 0x1p-14, generic);
    }
  }
  for (int dim : {8, 64, 256}) one("generic", gqa(2, 1, dim), b, b, 64, kMixed, 0x1p-13, generic);
  // A P in bf16 adds one rounding of every weight; decodes in pieces have it, too.
  const double half = 0x1p-8 + 0x1p-13, fine = dev.piece > 0 ? half : 0x1p-13;
  for (int dim : {64, 128, 256}) {
    one("decode", gqa(8, 2, dim), b, b, 64, kDecode, fine, best);
    one("decode few rows", gqa(8, 2, dim), b, b, 64, kFew, fine, best);
  }
  for (int group : {1, 2, 3, 5, 7, 8, 11, 16}) {
    one("decode group", gqa(group * 2, 2, 128), b, b, 64, kDecode, fine, best);
    one("decode group few", gqa(group * 2, 2, 64), b, b, 64, kFew, fine, best);
  }
  for (int page : {16, 32, 128}) {
    one("decode page", gqa(8, 2, 128), b, b, page, kDecode, fine, best);
  }
  for (int window : {1, 2, 63, 64, 65, 100, 1000}) {
    one("decode window", gqa(8, 2, 128, window), b, b, 16, kDecode, fine, best);
    one("decode window few", gqa(8, 2, 64, window), b, b, 64, kFew, fine, best);
  }
  one("decode many", gqa(32, 8, 128), b, b, 64, std::vector<Piece>(200, Piece{333, 1}), fine, best);
  for (int dim : {64, 128, 256}) {
    for (int group : {1, 4, 5, 7, 16}) {
      one("prefill", gqa(group * 2, 2, dim), b, b, 64, kChunks, half, best);
    }
    one("prefill page", gqa(8, 2, dim), b, b, 16, kChunks, half, best);
    one("prefill page", gqa(8, 2, dim), b, b, 128, kChunks, half, best);
    one("prefill window", gqa(8, 2, dim, 100), b, b, 64, kChunks, half, best);
    one("prefill window", gqa(8, 2, dim, 1), b, b, 16, kChunks, half, best);
    one("prefill window", gqa(8, 2, dim, 2000), b, b, 32, kChunks, half, best);
  }
  for (DType cache : {DType::kI8, DType::kF8E4M3, DType::kU4}) {
    one("quantized generic", gqa(5, 1, 80, 33), b, cache, 16, kMixed, 0x1p-14, generic);
    for (int dim : {64, 128, 256}) {
      one("quantized decode", gqa(8, 2, dim), b, cache, 64, kDecode, half, best);
      one("quantized decode few rows", gqa(8, 2, dim, 100), b, cache, 16, kFew, half, best);
      one("quantized prefill", gqa(8, 2, dim), b, cache, 64, kChunks, half, best);
      one("quantized prefill window", gqa(14, 2, dim, 100), b, cache, 32, kChunks, half, best);
    }
  }
  // Copies of one head at a time, and no room for any.
  for (const size_t bytes : {size_t{3} << 20, size_t{4096}}) {
    const cuda::WidenScratch all = dev.scratch;
    dev.scratch.bytes = bytes;
    dev.restart();
    for (DType cache : {DType::kI8, DType::kF8E4M3, DType::kU4})
      one("quantized prefill, little scratch", gqa(8, 2, 128), b, cache, 64, kChunks, half, best);
    dev.scratch = all;
    dev.restart();
  }
  // More pieces than results that can be stored (PlanHead::undivided).
  if (dev.piece > 0)
    one("decode many pieces", gqa(16, 16, 128), b, b, 64, std::vector<Piece>(130, Piece{2047, 1}),
        fine, best);
  one("prefill long", gqa(32, 8, 128), b, b, 64, {{0, 4100}}, half, best);
  one("nothing", gqa(8, 2, 128), b, b, 64, {}, half, best);
  one("nothing", gqa(8, 2, 128), b, b, 64, {{0, 0}, {70, 0}}, half, best);
}

// Microseconds of one call, as a median over replays of a graph that runs all layers in turn.
double time_layers(World& w, Device1& dev, const std::function<void(const KvLayer&)>& run) {
  for (const KvLayer& kv : w.kvs) run(kv);
  check(cudaStreamSynchronize(dev.stream), "warming up");
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamBeginCapture(dev.stream, cudaStreamCaptureModeThreadLocal), "capturing");
  for (const KvLayer& kv : w.kvs) run(kv);
  check(cudaStreamEndCapture(dev.stream, &graph), "capturing");
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiating");
  cudaEvent_t begin, end;
  cudaEventCreate(&begin), cudaEventCreate(&end);
  std::vector<double> times;
  for (int i = 0; i < 23; ++i) {
    cudaEventRecord(begin, dev.stream);
    check(cudaGraphLaunch(exec, dev.stream), "launching");
    cudaEventRecord(end, dev.stream);
    check(cudaEventSynchronize(end), "timing");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (i >= 3) times.push_back(static_cast<double>(ms) * 1000 / static_cast<double>(w.kvs.size()));
  }
  cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
  cudaEventDestroy(begin), cudaEventDestroy(end);
  std::ranges::sort(times);
  return times[times.size() / 2];
}

std::string only;  // only cases whose name contains this are timed

void time_attend(Device1& dev, const std::string& what, const Gqa& spec,
                 const std::vector<Piece>& pieces, int layers, bool decode, bool store = false,
                 DType cache = DType::kBF16) {
  if (what.find(only) == std::string::npos) return;
  World w(spec, DType::kBF16, cache, 64, pieces, 0, layers);
  const OnDevice<float> speeds(rope_frequencies(spec.rope));
  dev.attention->begin_step(w.batch, dev.stream);
  const double us = time_layers(w, dev, [&](const KvLayer& kv) {
    if (store) cuda::gqa_store(w.qkv, {}, {}, {}, spec, w.batch, kv, speeds.data(), dev.stream);
    dev.attention->attend(w.out, w.q, spec, w.batch, kv, dev.stream);
  });
  double bytes = 0, flops = 0;
  for (const Piece& p : pieces) {
    const int head = spec.head_dim * bits(cache) + 16 * kv_scales(kv_format(cache), spec.head_dim);
    bytes += static_cast<double>(p.begin + p.rows) * spec.kv_heads * head / 4;
    const double seen = p.rows * (p.begin + (p.rows + 1) / 2.0);
    flops += 4 * seen * spec.heads * spec.head_dim;
  }
  if (decode) {
    fmt::print("{:<34} {:9.1f} us {:8.0f} GB/s {:5.1f} % of 4.5 TB/s\n", what, us, bytes / us / 1e3,
               bytes / us / 1e3 / 45);
  } else {
    fmt::print("{:<34} {:9.1f} us {:8.1f} TFLOP/s {:5.1f} % of 790\n", what, us, flops / us / 1e6,
               flops / us / 1e6 / 7.9);
  }
}

void time_store(Device1& dev, const Gqa& spec, int rows, bool norms) {
  if (!only.empty()) return;
  World w(spec, DType::kBF16, DType::kBF16, 64, std::vector<Piece>{{1000, rows}}, 0, 8);
  const OnDevice<float> speeds(rope_frequencies(spec.rope));
  const OnDevice<float> ones(std::vector<float>(static_cast<size_t>(spec.head_dim), 1.0f));
  const Norm norm = {.weight = tensor(norms ? ones.data() : nullptr, DType::kF32, {spec.head_dim})};
  const double us = time_layers(w, dev, [&](const KvLayer& kv) {
    cuda::gqa_store(w.qkv, {}, norm, norm, spec, w.batch, kv, speeds.data(), dev.stream);
  });
  const double d = spec.head_dim * 2.0 * rows;
  const double bytes = d * ((spec.heads + spec.kv_heads) * 2 + spec.kv_heads * 3);
  fmt::print("store {:>5} rows {}/{} norms {:<5} {:9.1f} us {:8.0f} GB/s\n", rows, spec.heads,
             spec.kv_heads, norms, us, bytes / us / 1e3);
}

std::vector<Piece> skewed() {
  std::mt19937 random(11);
  std::vector<Piece> pieces;
  for (int i = 0; i < 64; ++i) {
    pieces.push_back({i % 11 == 3 ? 65535 : static_cast<int>(500 + random() % 3700), 1});
  }
  return pieces;
}

// The same attention over each kind of cache.
void time_caches(Device1& dev, const std::string& what, const Gqa& spec,
                 const std::vector<Piece>& pieces, int layers, bool decode, bool store = false) {
  for (DType cache : {DType::kBF16, DType::kI8, DType::kF8E4M3, DType::kU4})
    time_attend(dev, fmt::format("{}, cache {}", what, name(cache)), spec, pieces, layers, decode,
                store, cache);
}

void time_some(Device1& dev, const std::string& what) {
  const Gqa llama = gqa(32, 8, 128), ernie = gqa(20, 4, 128);
  const auto same = [](int n, int length) {
    return std::vector<Piece>(static_cast<size_t>(n), {length - 1, 1});
  };
  if (what == "caches") {
    time_caches(dev, "64 x 8K, 32/8", llama, same(64, 8192), 2, true);
    time_caches(dev, "128 x 1K, 32/8", llama, same(128, 1024), 4, true);
    time_caches(dev, "64 x 8K, 28/4", gqa(28, 4, 128), same(64, 8192), 2, true);
    time_caches(dev, "64 x 8K, 16/16 of 64", gqa(16, 16, 64), same(64, 8192), 2, true);
    time_caches(dev, "64 x 8K, 8/2 of 256", gqa(8, 2, 256), same(64, 8192), 2, true);
    time_caches(dev, "store, 1 x 1K, 32/8", llama, same(1, 1024), 32, true, true);
    time_caches(dev, "store, 128 x 1K, 32/8", llama, same(128, 1024), 4, true, true);
    time_caches(dev, "prefill 8K, 32/8", llama, {{0, 8192}}, 2, false);
    time_caches(dev, "prefill 8 x 1K, 32/8", llama, std::vector<Piece>(8, {0, 1024}), 4, false);
    time_caches(dev, "prefill 8K, 16/4 of 256", gqa(16, 4, 256), {{0, 8192}}, 2, false);
    return;
  }
  if (what != "prefill") {
    time_attend(dev, "decode 64 x 8K, 32/8", llama, same(64, 8192), 2, true);
    time_attend(dev, "decode 64 skewed, 32/8", llama, skewed(), 2, true);
    time_attend(dev, "decode 128 x 1K, 32/8", llama, same(128, 1024), 4, true);
    time_attend(dev, "decode 128 x 1K, 20/4", ernie, same(128, 1024), 8, true);
    time_attend(dev, "store, decode 128 x 1K, 32/8", llama, same(128, 1024), 4, true, true);
    time_attend(dev, "store, decode 128 x 1K, 28/4", gqa(28, 4, 128), same(128, 1024), 8, true,
                true);
    time_attend(dev, "store, decode 1 x 1K, 32/8", llama, same(1, 1024), 32, true, true);
    time_attend(dev, "decode 32 x 1K, 32/8", llama, same(32, 1024), 8, true);
    time_attend(dev, "decode 1 x 1K, 32/8", llama, same(1, 1024), 32, true);
    time_attend(dev, "decode 1 x 1K, 20/4", ernie, same(1, 1024), 64, true);
    time_attend(dev, "decode 1 x 128K, 32/8", llama, same(1, 131072), 2, true);
    time_attend(dev, "decode 64 x 8K, 28/4", gqa(28, 4, 128), same(64, 8192), 2, true);
    time_attend(dev, "decode 64 x 8K, 16/16 of 64", gqa(16, 16, 64), same(64, 8192), 2, true);
    time_attend(dev, "decode 64 x 8K, 8/2 of 256", gqa(8, 2, 256), same(64, 8192), 2, true);
    for (int rows : {1, 32, 128, 8192}) {
      time_store(dev, llama, rows, false);
      time_store(dev, llama, rows, true);
    }
  }
  if (what == "decode") return;
  dev.restart();
  time_attend(dev, "prefill 16K, 32/8", llama, {{0, 16384}}, 1, false);
  time_attend(dev, "prefill 8K, 32/8", llama, {{0, 8192}}, 2, false);
  time_attend(dev, "prefill 1K, 32/8", llama, {{0, 1024}}, 8, false);
  time_attend(dev, "prefill 8 x 1K, 32/8", llama, std::vector<Piece>(8, {0, 1024}), 4, false);
  time_attend(dev, "prefill 2K after 14K, 32/8", llama, {{14336, 2048}}, 2, false);
  time_attend(dev, "prefill 8K, 20/4", ernie, {{0, 8192}}, 2, false);
  time_attend(dev, "prefill 8K, 32/8 of 64", gqa(32, 8, 64), {{0, 8192}}, 2, false);
  time_attend(dev, "prefill 8K, 16/4 of 256", gqa(16, 4, 256), {{0, 8192}}, 2, false);
}

}  // namespace
}  // namespace skiff::bench

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string what = argc > 1 ? argv[1] : "all";
  if (argc > 2) skiff::bench::only = argv[2];
  skiff::bench::Device1 dev(argc > 3 ? std::stoi(argv[3]) : 0);
  skiff::bench::check_all(dev);
  fmt::print("{} cases checked against the formula, {} failures\n", skiff::bench::checks,
             skiff::bench::failures);
  if (skiff::bench::failures > 0) return 1;
  if (what != "check") skiff::bench::time_some(dev, what);
  return 0;
}

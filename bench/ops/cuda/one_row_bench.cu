// bench/ops/cuda/one_row_bench.cu -- whole layers of one sequence that sees 1024 tokens: operations
// gathered into one kernel between two attentions, against one kernel each. Same results first,
// then how fast.
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>

#include "harness.cuh"
#include "ops/ops.h"

namespace skiff::cuda::bench {
namespace {

constexpr double kReadLimit = 4.5e12;
constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;

constexpr int kHeadDim = 128, kPage = 64, kSeen = 1024;

struct Shape {
  const char* name;
  int hidden, q_cols, kv_cols, width;
  bool bias = false;
  Router router = {};  // experts 0: dense
  int layers = 6;
  std::optional<WeightFormat> format = {};  // the format of dense weights; bf16 without it
  QuantRule rule = QuantRule::kPaddle;

  bool moe() const { return router.experts > 0; }
  Gqa gqa() const {
    Gqa g{.heads = q_cols / kHeadDim, .kv_heads = kv_cols / kHeadDim, .head_dim = kHeadDim};
    g.rope.dim = kHeadDim;
    return g;
  }
  double layer_bytes() const {
    const double h = hidden;
    const double ffn = moe() ? 3 * h * width * router.per_token() + h * router.experts
                             : 3 * h * static_cast<double>(width);
    const double weights = h * (q_cols + 2.0 * kv_cols) + h * q_cols + ffn;
    return format ? weights * bits(format->dtype) / 8 : 2 * weights;  // without scales
  }
};

struct LayerWeights {
  Norm mixer_norm, ffn_norm;
  Linear qkv, out, gate_up, down, router;
};

struct Model {
  Shape shape;
  Tensor table, ids, bias;
  Norm norm;
  std::deque<LayerWeights> layers;
  std::vector<void*> memory;
  std::deque<Buffer> prepared;

  Tensor keep(const Tensor& t) {
    memory.push_back(t.data);
    return t;
  }
  Linear weight(Ops& ops, std::initializer_list<int64_t> dims, int64_t in) {
    const float scale = std::sqrt(3.0f / static_cast<float>(in));
    const Tensor plain = random(kBF16, dims, ++weights_, scale);
    const int64_t experts = dims.size() == 3 ? *dims.begin() : 0;
    if (!shape.format) return {.weight = keep(plain), .experts = experts};
    const WeightFormat& f = *shape.format;
    const int64_t out = plain.rows();
    Buffer codes(plain.device, byte_size(f.dtype, out * in));
    const int64_t rows = num_blocks(out, f.block_out), columns = num_blocks(in, f.block_in);
    Buffer scales(plain.device, byte_size(*f.scale, rows * columns));
    const Linear q = {.weight = codes.view(f.dtype, {out, in}),
                      .scale = scales.view(*f.scale, {rows, columns}),
                      .format = f};
    check(cudaDeviceSynchronize(), "filling");
    ops.quantize(q, plain, shape.rule);
    const Linear ready = ops.prepare(q, f, &prepared.emplace_back());
    ops.wait(ops.mark());
    cudaFree(plain.data);
    return ready;
  }
  Norm make_norm() {
    return {.weight = keep(random(kF32, {shape.hidden}, memory.size() + 1, 1.5f)), .eps = 1e-5f};
  }
  Model(Ops& ops, const Shape& s) : shape(s) {
    const int64_t h = s.hidden, w = s.width, experts = s.router.total();
    table = keep(random(kBF16, {16, h}, 1));
    norm = make_norm();
    if (s.bias) bias = keep(random(kF32, {s.q_cols + 2 * s.kv_cols}, 77));
    if (s.router.bias) bias = keep(random(kF32, {s.router.experts}, 78, 0.05f));
    for (int i = 0; i < s.layers; ++i) {
      LayerWeights l;
      l.mixer_norm = make_norm(), l.ffn_norm = make_norm();
      l.qkv = weight(ops, {s.q_cols + 2 * s.kv_cols, h}, h);
      if (s.bias) l.qkv.bias = bias;
      l.out = weight(ops, {h, s.q_cols}, s.q_cols);
      if (s.moe()) {
        l.router = weight(ops, {s.router.experts, h}, h);
        l.gate_up = weight(ops, {experts, 2 * w, h}, h);
        l.down = weight(ops, {experts, h, w}, w);
      } else {
        l.gate_up = weight(ops, {2 * w, h}, h);
        l.down = weight(ops, {h, w}, w);
      }
      layers.push_back(l);
    }
  }
  ~Model() {
    for (void* p : memory) cudaFree(p);
  }

 private:
  uint64_t weights_ = 0;
};

// Computes the operations between two attentions in the decoder's order.
class Run {
 public:
  Run(const Model& m, Ops& ops, int rows)
      : m_(m), ops_(ops), arena_(Buffer({Device::kCuda, 0}, size_t{64} << 20)) {
    const int64_t h = m.shape.hidden;
    residual = keep(make(kF32, {rows, h})), x = keep(make(kBF16, {rows, h}));
    std::vector<int32_t> ids, positions(static_cast<size_t>(rows), kSeen - 1), pages;
    for (int i = 0; i < rows; ++i) ids.push_back(rows - 1 - i), row_start_.push_back(i);
    row_start_.push_back(rows);
    kv_len_.assign(static_cast<size_t>(rows), kSeen);
    const int each = kSeen / kPage;
    for (int i = 0; i < rows * each; ++i) pages.push_back((i * 7 + 3) % (rows * each));
    ids_ = ints(ids, {rows});
    batch_ = {.num_seqs = rows,
              .num_tokens = rows,
              .max_rows = 1,
              .max_kv = kSeen,
              .tokens = ids_,
              .positions = ints(positions, {rows}),
              .row_start = ints(row_start_, {rows + 1}),
              .kv_len = ints(kv_len_, {rows}),
              .pages = ints(pages, {rows, each}),
              .out_rows = ids_,
              .host_row_start = row_start_,
              .host_kv_len = kv_len_};
    for (int l = 0; l < m.shape.layers; ++l) {
      KvLayer kv{.k = {}, .v = {}, .page_size = kPage};
      for (Tensor* t : {&kv.k, &kv.v})
        *t = keep(random(kBF16, {rows * each, kPage, m.shape.kv_cols / kHeadDim, kHeadDim},
                         static_cast<uint64_t>(100 + 2 * l + (t == &kv.v))));
      kv_.push_back(kv);
    }
  }
  ~Run() {
    for (void* p : memory_) cudaFree(p);
  }

  void layers() {
    const Shape& s = m_.shape;
    const int64_t rows = x.rows(), h = s.hidden;
    arena_.reset();
    ops_.embed(residual, m_.table, ids_);
    Tensor delta;
    const Gqa gqa = s.gqa();
    size_t layer = 0;
    for (const LayerWeights& w : m_.layers) {
      ops_.add_norm(x, residual, delta, w.mixer_norm);
      arena_.rewind(0);
      const Tensor qkv = arena_.take(kBF16, {rows, s.q_cols + 2 * s.kv_cols});
      const Tensor seen = arena_.take(kBF16, {rows, s.q_cols});
      delta = arena_.take(kBF16, {rows, h});
      ops_.linear(qkv, x, w.qkv);
      ops_.soon(w.out);
      ops_.gqa_store(qkv, {}, {}, gqa, batch_, kv_[layer]);
      ops_.gqa_attend(seen, qkv.col_range(0, s.q_cols), gqa, batch_, kv_[layer++]);
      ops_.linear(delta, seen, w.out);
      ops_.add_norm(x, residual, delta, w.ffn_norm);
      arena_.rewind(0);
      delta = arena_.take(kBF16, {rows, h});
      if (s.moe()) {
        const Tensor score = arena_.take(kF32, {rows, s.router.experts});
        ops_.linear(score, x, w.router);
        const Routing routing =
            ops_.route(score, s.router.bias ? m_.bias : Tensor{}, s.router, arena_);
        ops_.experts(delta, x, routing, w.gate_up, w.down, Act::kSilu, arena_);
      } else {
        const Tensor middle = arena_.take(kBF16, {rows, s.width});
        ops_.gated_linear(middle, x, w.gate_up, Act::kSilu, arena_);
        ops_.linear(delta, middle, w.down);
      }
    }
    ops_.add_norm(x, residual, delta, m_.norm);
  }
  void replay() {
    ops_.begin_step(batch_, {});
    ops_.replay(ReplayKey{.rows = static_cast<int>(x.rows())}, [this] { layers(); });
  }
  // x and the residual, as they are after one more run.
  std::vector<float> results() {
    poison(x), poison(residual);
    check(cudaDeviceSynchronize(), "poisoning");
    replay();
    ops_.wait(ops_.mark());
    std::vector<float> all = host<float>(residual.data, residual.elements());
    for (const __nv_bfloat16 v : host<__nv_bfloat16>(x.data, x.elements()))
      all.push_back(__bfloat162float(v));
    return all;
  }
  double us() {
    constexpr int kTimes = 6;
    std::vector<double> t;
    for (int i = 0; i < 9; ++i) {
      ops_.wait(ops_.mark());
      const auto begin = std::chrono::steady_clock::now();
      for (int k = 0; k < kTimes; ++k) replay();
      ops_.wait(ops_.mark());
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - begin;
      t.push_back(took.count() / kTimes);
    }
    std::sort(t.begin(), t.end());
    return t[t.size() / 2];
  }
  Tensor residual, x;

 private:
  Tensor keep(const Tensor& t) {
    memory_.push_back(t.data);
    return t;
  }
  Tensor ints(const std::vector<int32_t>& v, std::initializer_list<int64_t> shape) {
    const Tensor t = keep(make(DType::kI32, shape));
    check(cudaMemcpy(t.data, v.data(), v.size() * 4, cudaMemcpyHostToDevice), "copying");
    return t;
  }

  const Model& m_;
  Ops& ops_;
  Arena arena_;
  std::vector<void*> memory_;
  std::vector<int32_t> row_start_, kv_len_;
  Tensor ids_;
  RaggedBatch batch_;
  std::vector<KvLayer> kv_;
};

int compare(const Shape& shape, std::initializer_list<int> row_counts) {
  int failures = 0;
  const auto one_by_one = make_cuda_ops({.gather = false}), gathered = make_cuda_ops({});
  const Model model(*one_by_one, shape);
  for (int rows : row_counts) {
    Run a(model, *one_by_one, rows), b(model, *gathered, rows);
    std::vector<float> want, got, again;
    for (int i = 0; i < 3; ++i) want = a.results(), got = b.results();  // plain, recorded, replayed
    bool same = true;
    for (int i = 0; i < 20; ++i) {
      again = b.results();
      same &= std::memcmp(again.data(), got.data(), got.size() * sizeof(float)) == 0;
    }
    double error = 0, size = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      error += (got[i] - want[i]) * (got[i] - want[i]);
      size += want[i] * want[i];
    }
    const double off = std::sqrt(error / size);
    // Some hundred roundings to bf16 on the way, half a unit of 2^-8 each, that differ at random.
    // Where rows are rounded to e4m3, some fall on the other side of a step of an eighth.
    const bool rounds = shape.format && shape.format->input;
    const bool right = off < (rounds ? 0.06 : 0.02) && same;
    failures += !right;
    const double old_us = a.us() / shape.layers, new_us = b.us() / shape.layers;
    const double ideal = shape.layer_bytes() / kReadLimit * 1e6;
    std::printf(
        "%-22s rows %d: one by one %6.1f us a layer (%4.1f %%), gathered %6.1f (%4.1f %%)"
        "  error %.1e%s%s\n",
        shape.name, rows, old_us, 100 * ideal / old_us, new_us, 100 * ideal / new_us, off,
        same ? "" : "  DIFFERS FROM RUN TO RUN", right ? "" : "  WRONG");
    std::fflush(stdout);
  }
  return failures;
}

}  // namespace
}  // namespace skiff::cuda::bench

int main() {
  using namespace skiff::cuda::bench;
  int failures = 0;
  failures += compare({"small", 512, 512, 256, 768, false, {}, 3}, {1, 3});
  failures += compare({"small, odd, biased", 768, 1024, 256, 1283, true, {}, 3}, {1, 3});
  failures +=
      compare({"experts", 512, 512, 256, 256, false, {.experts = 8, .top_k = 2}, 3}, {1, 3});
  failures += compare({"Llama-3.1-8B", 4096, 4096, 1024, 14336}, {1});
  failures += compare({"Qwen2.5-7B", 3584, 3584, 512, 18944, true}, {1});
  using skiff::DType;
  using skiff::InputFormat;
  using skiff::QuantRule;
  const auto quantized = [&](const char* name, const skiff::WeightFormat& format, QuantRule rule) {
    failures += compare({name, 4096, 4096, 1024, 14336, false, {}, 6, format, rule}, {1});
  };
  const InputFormat groups = {DType::kF8E4M3, InputFormat::kGroups};
  quantized("Llama-8B wint8", {DType::kI8, 1, 0, DType::kF32}, QuantRule::kPaddle);
  quantized("Llama-8B wint4", {DType::kI4, 1, 0, DType::kBF16}, QuantRule::kPaddle);
  quantized("Llama-8B int4 g128", {DType::kI4, 1, 128, DType::kBF16}, QuantRule::kAbsMax);
  quantized("Llama-8B e4m3 x bf16", {DType::kF8E4M3, 128, 128, DType::kF32}, QuantRule::kFloat8);
  quantized("Llama-8B e4m3 x e4m3", {DType::kF8E4M3, 128, 128, DType::kF32, {}, groups},
            QuantRule::kFloat8);
  std::printf("gathered beside one by one, one row and three: %d failures\n", failures);
  return failures != 0;
}

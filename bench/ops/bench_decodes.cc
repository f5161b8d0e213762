// Times the parts of a step that decodes some sequences with the shape of Llama-3.2-1B on the cpu
// backend. Weights, keys and values are as many as those of the model, so that no cache holds them.
//   bench_decodes [threads [scheme [sequences [context [steps]]]]]
// A scheme is one of --quantization, or `bf16`. A single thread is timed in its own processor time,
// so that other jobs disturb it less. Results are not checked: the suite of operations does that.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/huge_pages.h"
#include "base/processors.h"
#include "bench_data.h"
#include "machine_limits.h"
#include "model/schemes.h"
#include "ops/cpu/cpu_ops.h"
#include "tensor/convert.h"
#include "tensor/memory.h"

namespace skiff::bench {
namespace {

constexpr int kLayers = 16, kPageSize = 64;
constexpr int64_t kHidden = 2048, kHeads = 32, kKvHeads = 8, kDim = 64, kWidth = 8192,
                  kVocab = 128'256;
constexpr int64_t kQkv = (kHeads + 2 * kKvHeads) * kDim;

enum Part { kProject, kStore, kAttend, kOut, kGateUp, kAct, kDown, kNorm, kHead, kSample, kParts };
constexpr std::string_view kNames[] = {"qkv",  "store", "attention", "o",      "gate and up", "act",
                                       "down", "norms", "head",      "sample", "step"};

struct Layer {
  Linear qkv, out, gate_up, down;
  KvLayer kv;
};

class Bench {
 public:
  Bench(int threads, int sequences, int context)
      : threads_(threads), ops_(make_cpu_ops(threads)), sequences_(sequences), context_(context) {}

  void prepare(const model::Scheme* scheme) {
    const Linear first[] = {weight(kQkv, kHidden, scheme), weight(kHidden, kHidden, scheme),
                            weight(2 * kWidth, kHidden, scheme), weight(kHidden, kWidth, scheme)};
    for (int i = 0; i < kLayers; ++i) {
      Layer& l = layers_.emplace_back();
      l.qkv = i ? copy(first[0]) : first[0];
      l.out = i ? copy(first[1]) : first[1];
      l.gate_up = i ? copy(first[2]) : first[2];
      l.down = i ? copy(first[3]) : first[3];
    }
    head_ = weight(kVocab, kHidden, scheme);
    norm_ = {data_.make(DType::kF32, {kHidden}), 1e-5f};
    for (int64_t i = 0; i < kHidden; ++i) norm_.weight.as<float>()[i] = 1;
    make_cache();
  }

  void run(int steps) {
    make_step();
    std::vector<Times> all;
    for (int i = 0; i < steps; ++i) all.push_back(step());
    report(all);
  }

 private:
  // The seconds of each part, then of the step.
  using Times = std::array<double, kParts + 1>;

  // The tensors of a step.
  struct Step {
    Tensor x, qkv, seen, delta, residual, both, mid, logits, ids;
    RaggedBatch batch;
    SampleBatch greedy;
  };

  void make_step() {
    const int64_t n = sequences_;
    step_.x = data_.random({n, kHidden}, 1);
    step_.qkv = data_.make(DType::kBF16, {n, kQkv});
    step_.seen = data_.make(DType::kBF16, {n, kHidden});
    step_.delta = data_.make(DType::kBF16, {n, kHidden});
    step_.residual = data_.make(DType::kF32, {n, kHidden});
    step_.both = data_.make(DType::kBF16, {n, 2 * kWidth});
    step_.mid = data_.make(DType::kBF16, {n, kWidth});
    step_.logits = data_.make(DType::kF32, {n, kVocab});
    step_.ids = data_.ints(0, sequences_, 0);
    step_.batch = make_batch();
    const Tensor zeros = data_.make(DType::kF32, {n}), longs = data_.make(DType::kI64, {n});
    std::fill_n(zeros.as<float>(), n, 0.0f);
    std::fill_n(longs.as<int64_t>(), n, int64_t{0});
    step_.greedy = {.temperature = zeros,
                    .top_p = zeros,
                    .min_p = zeros,
                    .top_k = step_.ids,
                    .seed = longs,
                    .draw = longs};
  }

  Times step() {
    const Gqa spec = {
        .heads = kHeads, .kv_heads = kKvHeads, .head_dim = kDim, .rope = {.dim = kDim}};
    const Step& s = step_;
    Times t{};
    const auto part = [&](Part p, auto f) {
      const double begin = now(threads_);
      f();
      t[p] += now(threads_) - begin;
    };
    std::fill_n(s.residual.as<float>(), s.residual.elements(), 1.0f);
    part(kParts, [&] {
      ops_->begin_step(s.batch, {});
      for (const Layer& l : layers_) {
        part(kNorm, [&] { ops_->add_norm(s.x, s.residual, {}, norm_); });
        part(kProject, [&] { ops_->linear(s.qkv, s.x, l.qkv); });
        part(kStore, [&] { ops_->gqa_store(s.qkv, {}, {}, spec, s.batch, l.kv); });
        const Tensor q = s.qkv.col_range(0, kHidden);
        part(kAttend, [&] { ops_->gqa_attend(s.seen, q, spec, s.batch, l.kv); });
        part(kOut, [&] { ops_->linear(s.delta, s.seen, l.out); });
        part(kNorm, [&] { ops_->add_norm(s.x, s.residual, s.delta, norm_); });
        part(kGateUp, [&] { ops_->linear(s.both, s.x, l.gate_up); });
        part(kAct, [&] { ops_->gated_act(s.mid, s.both, Act::kSilu); });
        part(kDown, [&] { ops_->linear(s.delta, s.mid, l.down); });
      }
      part(kHead, [&] { ops_->linear(s.logits, s.x, head_); });
      part(kSample, [&] { ops_->sample(s.ids, s.logits, s.greedy); });
    });
    return t;
  }

  void report(const std::vector<Times>& all) const {
    const auto middle = [&](size_t p) {
      std::vector<double> v;
      for (const Times& t : all) v.push_back(t[p]);
      std::ranges::sort(v);
      return v[v.size() / 2];
    };
    const Layer& l = layers_[0];
    Times bytes{};
    bytes[kProject] = kLayers * size(l.qkv);
    bytes[kAttend] = 4.0 * kLayers * sequences_ * context_ * kKvHeads * kDim;
    bytes[kOut] = kLayers * size(l.out);
    bytes[kGateUp] = kLayers * size(l.gate_up);
    bytes[kDown] = kLayers * size(l.down);
    bytes[kHead] = size(head_);
    bytes[kParts] = std::accumulate(bytes.begin(), bytes.end(), 0.0);
    for (size_t p = 0; p <= kParts; ++p)
      fmt::print("{:<12} {:>8.3f} ms  {:>6.1f} GB/s\n", kNames[p], middle(p) * 1e3,
                 bytes[p] / middle(p) / 1e9);
    fmt::print("{} sequences behind {}: {:.1f} tokens/s\n", sequences_, context_,
               sequences_ / middle(kParts));
  }

  static double size(const Tensor& t) {
    return t ? static_cast<double>(byte_size(t.dtype, t.elements())) : 0;
  }
  static double size(const Linear& w) { return size(w.weight) + size(w.scale); }

  Linear weight(int64_t out, int64_t in, const model::Scheme* scheme) {
    Data data(true);
    const Tensor weight = data.random({out, in}, 0.05f);
    Linear plain = {.weight = weight, .format = {DType::kBF16}};
    if (scheme) {
      const WeightFormat format = *scheme->format_for(in);
      plain = {.weight = data.make(format.dtype, {out, in}), .format = format};
      plain.scale = data.make(*format.scale,
                              {num_blocks(out, format.block_out), num_blocks(in, format.block_in)});
      ops_->quantize(plain, weight, scheme->rule);
    }
    return ops_->prepare(plain, plain.format, &data_.owner());
  }

  // The same in other memory.
  Linear copy(const Linear& w) {
    Linear to = w;
    const auto clone = [&](const Tensor& t) {
      if (!t) return t;
      Buffer& b = data_.owner();
      const size_t bytes = byte_size(t.dtype, t.elements());
      b = Buffer(Device{}, bytes);
      ask_for_huge_pages({b.data(), b.size()});
      std::memcpy(b.data(), t.data, bytes);
      Tensor c = t;
      c.data = b.data();
      return c;
    };
    to.weight = clone(w.weight);
    to.scale = clone(w.scale);
    return to;
  }

  int pages() const { return (context_ + kPageSize - 1) / kPageSize; }

  // Pages of all layers lie side by side, as in a KvCache.
  void make_cache() {
    const int64_t blocks = int64_t{pages()} * sequences_, page = kPageSize * kKvHeads * kDim;
    const Tensor all = data_.random({blocks, kLayers, 2, page}, 1);
    for (int i = 0; i < kLayers; ++i) {
      Tensor k = all.reshaped({blocks * kLayers * 2, kPageSize, kKvHeads, kDim});
      k.dim[0] = blocks;
      k.row_stride = page * 2 * kLayers;
      k.data = all.as<BF16>() + 2 * i * page;
      Tensor v = k;
      v.data = all.as<BF16>() + (2 * i + 1) * page;
      layers_[static_cast<size_t>(i)].kv = {.k = k, .v = v, .page_size = kPageSize};
    }
  }

  RaggedBatch make_batch() {
    const int n = sequences_;
    RaggedBatch batch = {.num_seqs = n,
                         .num_tokens = n,
                         .max_rows = 1,
                         .max_kv = context_,
                         .tokens = data_.ints(1, n, 0),
                         .positions = data_.ints(context_ - 1, n, 0),
                         .row_start = data_.ints(0, n + 1, 1),
                         .kv_len = data_.ints(context_, n, 0),
                         .pages = {},
                         .out_rows = data_.ints(0, n, 1)};
    batch.pages = data_.ints(0, n * pages(), 1).reshaped({n, pages()});
    return batch;
  }

  int threads_;
  std::unique_ptr<Ops> ops_;
  int sequences_, context_;
  Data data_{true};
  std::vector<Layer> layers_;
  Linear head_;
  Norm norm_;
  Step step_;
};

}  // namespace
}  // namespace skiff::bench

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) {
    return argc > i ? std::max(1, std::atoi(argv[i])) : otherwise;
  };
  const std::string_view name = argc > 2 ? argv[2] : "w4a8";
  skiff::bench::Bench bench(number(1, skiff::usable_processors()), number(3, 8), number(4, 528));
  bench.prepare(skiff::model::find_scheme(name));
  bench.run(number(5, 50));
}

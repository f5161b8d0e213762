// Successive operations as in a layer, started without waits in between. A device may fuse them;
// every tensor must still have the value that Ops defines. Each output is judged by its inputs as
// the device computed them, so the bounds are those of single operations.
#include <algorithm>
#include <map>
#include <tuple>

#include "ops/suite/formats.h"
#include "tensor/device_memory.h"

namespace skiff::suite {
namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;

struct ChainCase {
  int rows, hidden, q_cols, width;
  bool bias = false;
  Act act = Act::kSilu;
  Router router = {};                       // experts 0: dense
  std::optional<WeightFormat> format = {};  // how all weights are kept; bf16 without it
  bool moe() const { return router.experts > 0; }
};
void PrintTo(const ChainCase& c, std::ostream* to) { *to << c.rows << " rows"; }

using ChainParam = std::tuple<Backend, ChainCase>;

class OpChain : public testing::TestWithParam<ChainParam> {};

struct Weights {
  Norm first, second;
  Linear qkv, out, gate_up, down, router;
  Tensor router_bias;
};

// One layer from attention's output to the next layer's qkv, on the device of `ops`.
class Layer {
 public:
  Layer(Ops& ops, const ChainCase& c)
      : ops_(ops),
        c_(c),
        ws_(static_cast<uint64_t>(c.hidden + c.width + c.rows)),
        inputs_(Buffer(ops.device(), 32 << 20)),
        memory_(Buffer(ops.device(), 32 << 20)) {
    plain_.first.weight = ws_.random(kF32, {c.hidden});
    plain_.second.weight = ws_.random(kF32, {c.hidden});
    plain_.first.eps = plain_.second.eps = 1e-5f;
    const int64_t experts = c.router.total(), h = c.hidden, w = c.width;
    plain_.out = matrix({h, c.q_cols}, c.q_cols, false);
    plain_.qkv = matrix({c.q_cols + 64, h}, h, c.bias);
    if (c.moe()) {
      plain_.router = matrix({c.router.experts, h}, h, false);
      if (c.router.bias) plain_.router_bias = ws_.random(kF32, {c.router.experts}, 0.05);
      plain_.gate_up = matrix({experts, 2 * w, h}, h, false);
      plain_.down = matrix({experts, h, w}, w, false);
      plain_.gate_up.experts = plain_.down.experts = experts;
    } else {
      plain_.gate_up = matrix({2 * w, h}, h, c.bias);
      plain_.down = matrix({h, w}, w, false);
    }
    ready_ = plain_;
    for (auto member :
         {&Weights::qkv, &Weights::out, &Weights::gate_up, &Weights::down, &Weights::router}) {
      if ((plain_.*member).weight)
        ready_.*member = ops.prepare(plain_.*member, c.format.value_or(WeightFormat{kBF16}),
                                     &owners_.emplace_back());
    }
    ready_.first.weight = upload(plain_.first.weight);
    ready_.second.weight = upload(plain_.second.weight);
    if (plain_.router_bias) ready_.router_bias = upload(plain_.router_bias);
    seen_host_ = ws_.random(kBF16, {c.rows, c.q_cols});
    residual_host_ = ws_.random(kF32, {c.rows, h}, 2);
    seen_ = upload(seen_host_), residual_start_ = upload(residual_host_);
    residual_ = inputs_.take(kF32, {c.rows, h});
  }

  // `apart`: no tensor takes the place of another; else blocks follow each other as in a decoder.
  void work(bool apart) {
    memory_.reset();
    Tensor seen = seen_;
    if (!apart) {
      const Tensor qkv = memory_.take(kBF16, {c_.rows, c_.q_cols + 64});
      seen = memory_.take(kBF16, {c_.rows, c_.q_cols});
      (void)qkv;
      ops_.copy(seen, seen_);
    }
    const auto next = [&] {
      if (!apart) memory_.rewind(0);
    };
    ops_.copy(residual_, residual_start_);
    delta1 = memory_.take(kBF16, {c_.rows, c_.hidden});
    x1 = inputs_x(0), x2 = inputs_x(apart ? 1 : 0);
    ops_.linear(delta1, seen, ready_.out);
    ops_.add_norm(x1, residual_, delta1, ready_.first);
    next();
    delta2 = memory_.take(kBF16, {c_.rows, c_.hidden});
    if (c_.moe()) {
      score = memory_.take(kF32, {c_.rows, c_.router.experts});
      ops_.linear(score, x1, ready_.router);
      routing = ops_.route(score, ready_.router_bias, c_.router, memory_);
      ops_.experts(delta2, x1, routing, ready_.gate_up, ready_.down, c_.act, memory_);
    } else {
      middle = memory_.take(kBF16, {c_.rows, c_.width});
      ops_.gated_linear(middle, x1, ready_.gate_up, c_.act, memory_);
      ops_.linear(delta2, middle, ready_.down);
    }
    ops_.add_norm(x2, residual_, delta2, ready_.second);
    next();
    qkv = memory_.take(kBF16, {c_.rows, c_.q_cols + 64});
    ops_.linear(qkv, x2, ready_.qkv);
  }

  Tensor download(const Tensor& t) {
    const Tensor host = ws_.output(t.dtype, {t.rows(), t.cols()});
    if (t.elements() > 0) ops_.copy(host, t);
    ops_.wait(ops_.mark());
    return host;
  }
  // Returns the results that must not depend on where tensors lie.
  std::vector<std::byte> results() {
    std::vector<std::byte> all = all_bytes(download(residual_));
    for (const Tensor& t : {x2, qkv}) {
      const std::vector<std::byte> more = all_bytes(download(t));
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }

  void expect_right() {
    const Tensor d1 = download(delta1), d2 = download(delta2), x = download(x1);
    expect_product(d1, seen_host_, plain_.out);
    const Tensor between = ws_.output(kF32, {c_.rows, c_.hidden});
    expect_norm(x, residual_host_, d1, plain_.first, between);
    if (c_.moe())
      expect_experts(d2, x);
    else
      expect_dense(d2, x);
    const Tensor end = ws_.output(kF32, {c_.rows, c_.hidden}), y = download(x2);
    expect_norm(y, between, d2, plain_.second, end);
    EXPECT_EQ(all_bytes(end), all_bytes(download(residual_)));
    expect_product(download(qkv), y, plain_.qkv);
  }

  Tensor delta1, delta2, x1, x2, score, middle, qkv;
  Routing routing;

 private:
  Linear matrix(std::initializer_list<int64_t> shape, int64_t in, bool bias) {
    if (c_.format)
      return random_weight(ws_, *c_.format, {.out = *shape.begin(), .in = in, .bias = bias});
    Linear l;
    l.weight = ws_.random(kBF16, shape, 1 / std::sqrt(static_cast<double>(in)));
    if (bias) l.bias = ws_.random(kF32, {*shape.begin()}, 0.5);
    return l;
  }
  Tensor upload(const Tensor& host) {
    Tensor t = inputs_.take(host.dtype, {host.rows(), host.cols()});
    if (host.cols() == 1) t = t.reshaped({host.rows()});
    ops_.copy(t, host);
    return t;
  }
  Tensor inputs_x(size_t which) {
    while (xs_.size() <= which) xs_.push_back(inputs_.take(kBF16, {c_.rows, c_.hidden}));
    return xs_[which];
  }

  Approx product(const Tensor& x, int64_t r, const Linear& w, int64_t row) {
    if (c_.format)
      return quantized_product(rounded_input(row_of(x, r), w, 0), w, 0, row,
                               ops_.device() != Device{});
    double sum = w.bias ? at(w.bias, row) : 0, size = std::abs(sum);
    const auto in = x.cols();
    const BF16* weights = w.weight.as<BF16>() + row * in;
    for (int64_t i = 0; i < in; ++i) {
      const double p = at(x, r, i) * static_cast<double>(to_float(weights[i]));
      sum += p;
      size += std::abs(p);
    }
    return {sum, static_cast<double>(in + 2) * kF32Round * size};
  }
  void expect_product(const Tensor& out, const Tensor& x, const Linear& w) {
    expect_near(out, [&](int64_t r, int64_t o) { return product(x, r, w, o); });
  }
  // Gate and up may be rounded once on the way; no activation is steeper than 1.13.
  Approx gated(const Tensor& x, int64_t r, const Linear& w, int64_t gate, int64_t up) {
    Approx g = product(x, r, w, gate), u = product(x, r, w, up);
    for (Approx* a : {&g, &u}) a->bound += kBf16Round * (std::abs(a->value) + a->bound);
    const double on = c_.act == Act::kGelu ? g.value * 0.5 * (1 + std::erf(g.value / std::sqrt(2)))
                                           : g.value / (1 + std::exp(-g.value));
    const double on_bound = 1.13 * g.bound + 8 * kF32Round * std::abs(g.value);
    return {on * u.value, on_bound * (std::abs(u.value) + u.bound) + std::abs(on) * u.bound};
  }
  void expect_norm(const Tensor& out, const Tensor& before, const Tensor& delta, const Norm& norm,
                   const Tensor& after) {
    std::vector<double> rms;
    for (int64_t r = 0; r < out.rows(); ++r) {
      double squares = 0;
      for (int64_t i = 0; i < out.cols(); ++i) {
        put(after, r, i, at(before, r, i) + at(delta, r, i));
        squares += at(after, r, i) * at(after, r, i);
      }
      rms.push_back(
          std::sqrt(squares / static_cast<double>(out.cols()) + static_cast<double>(norm.eps)));
    }
    expect_near(out, [&](int64_t r, int64_t i) {
      const double y = at(after, r, i) / rms[static_cast<size_t>(r)] * at(norm.weight, i);
      return Approx{y, (static_cast<double>(out.cols()) / 2 + 8) * kF32Round * std::abs(y)};
    });
  }
  void expect_dense(const Tensor& d2, const Tensor& x) {
    const Tensor mid = download(middle);
    expect_near(mid,
                [&](int64_t r, int64_t i) { return gated(x, r, plain_.gate_up, i, c_.width + i); });
    expect_product(d2, mid, plain_.down);
  }
  // The routing by the scores as they came out; the experts by the routing.
  void expect_experts(const Tensor& d2, const Tensor& x) {
    const Tensor scores = download(score), chosen = download(routing.expert),
                 weight = download(routing.weight);
    expect_product(scores, x, plain_.router);
    const Router& router = c_.router;
    std::vector<int32_t> ids;
    for (int64_t r = 0; r < c_.rows; ++r) {
      expect_choice(r, scores, chosen, weight);
      for (int k = 0; k < router.per_token(); ++k) ids.push_back(chosen.row<int32_t>(r)[k]);
    }
    expect_order(ids);
    const int64_t w = c_.width, h = c_.hidden;
    for (int64_t r = 0; r < c_.rows; ++r) {
      std::vector<Approx> sum(static_cast<size_t>(h));
      for (int k = 0; k < router.per_token(); ++k) {
        const int64_t e = chosen.row<int32_t>(r)[k];
        std::vector<Approx> inner;
        for (int64_t i = 0; i < w; ++i) {
          Approx a = gated(x, r, plain_.gate_up, e * 2 * w + i, e * 2 * w + w + i);
          a.bound += kBf16Round * (std::abs(a.value) + a.bound);
          inner.push_back(a);
        }
        add_down(sum, inner, e, at(weight, r, k));
      }
      expect_near(d2.row_range(r, 1),
                  [&](int64_t, int64_t o) { return sum[static_cast<size_t>(o)]; });
    }
  }
  void add_down(std::vector<Approx>& sum, const std::vector<Approx>& inner, int64_t e, double by) {
    const auto w = static_cast<int64_t>(inner.size());
    for (size_t o = 0; o < sum.size(); ++o) {
      const BF16* row =
          plain_.down.weight.as<BF16>() + (e * c_.hidden + static_cast<int64_t>(o)) * w;
      double y = 0, bound = 0, size = 0;
      for (size_t i = 0; i < inner.size(); ++i) {
        const double d = to_float(row[i]);
        y += d * inner[i].value;
        bound += std::abs(d) * inner[i].bound;
        size += std::abs(d * inner[i].value);
      }
      sum[o].value += by * y;
      sum[o].bound +=
          by * (1.1 * bound + (c_.width + c_.router.per_token() + 4) * kF32Round * size);
    }
  }
  void expect_choice(int64_t r, const Tensor& scores, const Tensor& chosen, const Tensor& weight) {
    const Router& router = c_.router;
    std::vector<double> p;
    double best = -INFINITY, all = 0, sum = 0;
    for (int e = 0; e < router.experts; ++e) best = std::max(best, at(scores, r, e));
    for (int e = 0; e < router.experts; ++e) {
      p.push_back(std::exp(at(scores, r, e) - best));
      all += p.back();
    }
    std::vector<std::pair<double, int>> order;
    for (int e = 0; e < router.experts; ++e) {
      p[static_cast<size_t>(e)] /= all;
      const double bias = plain_.router_bias ? at(plain_.router_bias, e) : 0;
      order.emplace_back(-(p[static_cast<size_t>(e)] + bias), e);
    }
    std::ranges::sort(order);
    for (int k = 0; k < router.top_k; ++k)
      sum += p[static_cast<size_t>(order[static_cast<size_t>(k)].second)];
    for (int k = 0; k < router.per_token(); ++k) {
      const bool always = k >= router.top_k;
      const int e =
          always ? router.experts + k - router.top_k : order[static_cast<size_t>(k)].second;
      EXPECT_EQ(chosen.row<int32_t>(r)[k], e) << "row " << r << ", place " << k;
      const double want =
          always ? 1 : p[static_cast<size_t>(e)] / (router.renorm ? std::max(sum, 1e-12) : 1);
      EXPECT_NEAR(at(weight, r, k), want, (2.0 * router.experts + 33) * kF32Round * want);
    }
  }
  void expect_order(const std::vector<int32_t>& ids) {
    std::vector<int32_t> order(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::ranges::sort(order, {},
                      [&](int32_t i) { return std::pair(ids[static_cast<size_t>(i)], i); });
    const Tensor got = download(routing.order), start = download(routing.expert_start);
    for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(got.as<int32_t>()[i], order[i]) << i;
    for (int e = 0; e <= c_.router.total(); ++e)
      EXPECT_EQ(start.as<int32_t>()[e], std::ranges::count_if(ids, [&](int i) { return i < e; }));
  }

  Ops& ops_;
  ChainCase c_;
  Workspace ws_;
  Arena inputs_, memory_;
  Weights plain_, ready_;
  std::deque<Buffer> owners_;
  std::vector<Tensor> xs_;
  Tensor seen_host_, residual_host_, seen_, residual_start_, residual_;
};

constexpr WeightFormat kWint8{DType::kI8, 1, 0, kF32}, kInt4{DType::kI4, 1, 128, kBF16},
    kZeros{DType::kU4, 1, 128, DType::kF16, DType::kU4}, kHalfChunks{DType::kI4, 1, 64, kBF16},
    kRoundedRows{DType::kF8E4M3, 128, 128,
                 kF32,           {},  InputFormat{DType::kF8E4M3, InputFormat::kGroups}};

const ChainCase kChains[] = {
    {1, 256, 256, 256},
    {1, 512, 256, 1027, true},
    {2, 256, 512, 768, false, Act::kGelu},
    {3, 768, 256, 512},
    {4, 256, 768, 2816, true},
    {5, 256, 256, 512},
    {1, 1024, 512, 5376},  // more weights than all shared memory of a device holds
    {1, 200, 256, 256},
    {1, 256, 256, 13000},  // more of the ring's smallest items than it has slots
    // The classes of products by rows: streamed in tiles of 8 and of 16 rows, or by cuBLASLt.
    {8, 2056, 512, 3104},
    {16, 2056, 512, 3104},
    {17, 512, 512, 1032, true},
    {40, 256, 256, 640, false, Act::kGelu},
    {130, 256, 256, 520},
    {1, 256, 256, 256, false, Act::kSilu, {.experts = 8, .top_k = 3}},
    {1, 512, 256, 256, true, Act::kSilu, {.experts = 9, .top_k = 2, .bias = true, .always = 2}},
    {1,
     256,
     256,
     768,
     false,
     Act::kGelu,
     {.experts = 66, .top_k = 5, .renorm = false, .always = 1}},
    {2, 256, 256, 256, false, Act::kSilu, {.experts = 8, .top_k = 3, .always = 1}},
    {1, 256, 256, 200, false, Act::kSilu, {.experts = 8, .top_k = 3}},
    {9, 256, 256, 192, false, Act::kSilu, {.experts = 8, .top_k = 2}},
    {20, 256, 256, 192, false, Act::kSilu, {.experts = 8, .top_k = 2, .always = 2}},
    {40, 256, 256, 192, false, Act::kSilu, {.experts = 8, .top_k = 2, .always = 1}},
    {130, 128, 128, 64, false, Act::kSilu, {.experts = 4, .top_k = 2, .always = 1}},
    {1, 512, 256, 1024, true, Act::kSilu, {}, kWint8},
    {1, 256, 512, 4352, false, Act::kGelu, {}, kInt4},
    {1, 256, 256, 512, true, Act::kSilu, {}, kZeros},
    {1, 768, 512, 2304, true, Act::kSilu, {}, kRoundedRows},
    {1, 256, 256, 648, false, Act::kSilu, {}, kWint8},  // some of them outside
    {1, 256, 256, 512, false, Act::kSilu, {}, kHalfChunks},
    {3, 256, 256, 512, true, Act::kSilu, {}, kInt4},
    {70, 256, 256, 512, false, Act::kSilu, {}, kRoundedRows},
};

std::string name_of(const ChainCase& c) {
  const std::string format =
      c.format ? fmt::format("_{}_{}", name(c.format->dtype), c.format->block_in) : "";
  return fmt::format("rows{}_hidden{}_q{}_width{}_experts{}{}", c.rows, c.hidden, c.q_cols, c.width,
                     c.router.experts, format);
}

TEST_P(OpChain, EveryTensorIsWhatItShouldBe) {
  const auto& [backend, chain] = GetParam();
  const auto ops = backend.make();
  if (ops->device() == Device{} && int64_t{chain.hidden} * chain.width > 6'000'000)
    GTEST_SKIP() << "so large for the sake of a device's kernels";
  if (chain.format && !ops->multiplies(*chain.format)) GTEST_SKIP() << describe(*chain.format);
  Layer layer(*ops, chain);
  layer.work(true);
  layer.expect_right();
  const std::vector<std::byte> want = layer.results();
  // Recorded or not, again and again, and where tensors take each other's place.
  for (bool apart : {true, false}) {
    const ReplayKey key{.variant = apart};
    for (int i = 0; i < 4; ++i) {
      ops->replay(key, [&] { layer.work(apart); });
      EXPECT_EQ(layer.results(), want) << (apart ? "apart " : "in place ") << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, OpChain,
                         testing::Combine(testing::ValuesIn(unwaited_backends()),
                                          testing::ValuesIn(kChains)),
                         [](const auto& info) {
                           return std::get<Backend>(info.param).name + "_" +
                                  name_of(std::get<ChainCase>(info.param));
                         });

}  // namespace
}  // namespace skiff::suite

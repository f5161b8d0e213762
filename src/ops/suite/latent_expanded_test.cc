// latent_attend where sequences have many new rows, in the shape for which a device may compute
// them un-absorbed: against the formula with keys and values of each head, in double.
#include <algorithm>
#include <numeric>

#include "ops/suite/latent.h"

namespace skiff::suite {
namespace {

constexpr DType kBF16 = DType::kBF16;
constexpr int64_t kRank = 512, kRope = 64, kNope = 128, kValue = 128;

Mla with_values(int heads) {
  Mla spec = deepseek(heads);
  spec.v_dim = kValue;
  return spec;
}

// Random weights of a head that keep the size of what they multiply.
struct Stack {
  Linear w;
  Tensor met;
  Buffer owner;

  Stack(Workspace& ws, Ops& ops, int heads, int out, int in) {
    const Tensor plain = ws.random(kBF16, {heads, out, in}, 1 / std::sqrt(512.0));
    met = plain;
    w = ops.prepare({.weight = plain, .experts = heads}, {kBF16}, &owner);
  }
};

// Keys and values of one head of one sequence, [positions, 128], and what they are made from.
struct HeadCache {
  std::vector<std::vector<double>> c, k, v;

  HeadCache(const Paged& paged, int seq, int positions, const Tensor& absorb, const Tensor& value,
            int head) {
    std::vector<double> up_k(kRank * kNope), up_v(kValue * kRank);
    for (size_t i = 0; i < up_k.size(); ++i) up_k[i] = at(absorb, head, static_cast<int64_t>(i));
    for (size_t i = 0; i < up_v.size(); ++i) up_v[i] = at(value, head, static_cast<int64_t>(i));
    for (int t = 0; t < positions; ++t) {
      const std::vector<double>& x = c.emplace_back(paged.keys(seq, t));
      std::vector<double>& key = k.emplace_back(static_cast<size_t>(kNope));
      std::vector<double>& mean = v.emplace_back(static_cast<size_t>(kValue));
      for (size_t i = 0; i < kRank; ++i)
        for (size_t n = 0; n < kNope; ++n) key[n] += up_k[i * kNope + n] * x[i];
      for (size_t o = 0; o < kValue; ++o)
        mean[o] = std::inner_product(x.begin(), x.begin() + kRank, &up_v[o * kRank], 0.0);
    }
  }
};

// The error of everything that was compared, whose roundings are independent of each other.
struct Errors {
  double squares = 0, all = 0;
};

// Either form rounds to bf16: here keys and values, there the query and the mean that a head gets
// from the latent. A score's error is bounded by that of its products; weights are rounded as well.
void expect_head(const Tensor& out, const Tensor& q, const Mla& spec, const HeadCache& cache,
                 const Tensor& absorb, const Tensor& value, int head, int position,
                 Errors& errors) {
  const auto scale = static_cast<double>(spec.scale);
  std::vector<double> query(kRank), score, total(kValue), size(kValue), latent(kRank);
  for (int i = 0; i < kRank; ++i)
    for (int n = 0; n < kNope; ++n)
      query[static_cast<size_t>(i)] += at(q, 0, n) * at(absorb, head, int64_t{i} * kNope + n);
  double bound = 0, best = -INFINITY, sum = 0;
  for (size_t t = 0; t <= static_cast<size_t>(position); ++t) {
    double s = 0, expanded = 0, absorbed = 0;
    for (int n = 0; n < kNope + kRope; ++n) {
      const auto i = static_cast<size_t>(n);
      const double term = at(q, 0, n) * (n < kNope ? cache.k[t][i] : cache.c[t][kRank + i - kNope]);
      s += term, expanded += std::abs(term);
    }
    for (size_t i = 0; i < kRank; ++i) absorbed += std::abs(query[i] * cache.c[t][i]);
    score.push_back(s * scale);
    best = std::max(best, score.back());
    bound = std::max(bound, (kBf16Round + 600 * kF32Round) * std::max(expanded, absorbed) * scale);
  }
  for (size_t t = 0; t < score.size(); ++t) {
    const double weight = std::exp(score[t] - best);
    sum += weight;
    for (size_t o = 0; o < kValue; ++o) {
      total[o] += weight * cache.v[t][o];
      size[o] += std::abs(weight * cache.v[t][o]);
    }
    for (size_t i = 0; i < kRank; ++i) latent[i] += std::abs(weight * cache.c[t][i]);
  }
  expect_near(out, [&](int64_t, int64_t column) {
    const auto o = static_cast<size_t>(column);
    double absorbed = 0;
    for (int i = 0; i < kRank; ++i)
      absorbed += std::abs(at(value, head, column * kRank + i)) * latent[static_cast<size_t>(i)];
    const double rounded = 2 * kBf16Round + (2.0 * position + 1200) * kF32Round;
    return Approx{total[o] / sum,
                  (2 * bound * size[o] + rounded * std::max(size[o], absorbed)) / sum};
  });
  for (size_t o = 0; o < kValue; ++o) {
    const double error = at(out, 0, static_cast<int64_t>(o)) - total[o] / sum;
    errors.squares += error * error, errors.all += total[o] / sum * total[o] / sum;
  }
}

struct Spans {
  int heads;
  std::vector<Piece> pieces;
  bool quantized = false;
  int page_size = 64, padding = 0;
  size_t checked = 5;  // heads of sequences
};

class ExpandedLatents : public OpSuite {
 protected:
  bool takes_many() const {
    return ops->device() != Device{} && GetParam().name != "cuda_portable";
  }

  static RaggedBatch padded(Workspace& ws, const RaggedBatch& batch, int padding) {
    RaggedBatch out = batch;
    std::vector<int32_t> positions;
    const int rows = batch.num_tokens + padding;
    positions.reserve(static_cast<size_t>(rows));
    for (int r = 0; r < rows; ++r)
      positions.push_back(r < batch.num_tokens ? batch.positions.as<int32_t>()[r] : 0);
    out.positions = ws.ints(positions);
    out.num_tokens += padding;
    return out;
  }

  void attend(const Spans& c) {
    SCOPED_TRACE(fmt::format("{} heads, {} sequences, the first of {} after {}{}", c.heads,
                             c.pieces.size(), c.pieces[0].rows, c.pieces[0].begin,
                             c.quantized ? ", 8-bit rows" : ""));
    const Mla spec = with_values(c.heads);
    Workspace ws(static_cast<uint64_t>(c.heads * 1000 + c.pieces[0].rows));
    Paged paged(ws, cached(spec), kBF16, c.page_size, c.pieces);
    const KvLayer cache = c.quantized ? make_rows(ws, paged, spec) : latents(paged);
    const RaggedBatch batch = padded(ws, paged.batch, c.padding);
    const int64_t rows = batch.num_tokens;
    const Tensor q = ws.random(kBF16, {rows, int64_t{c.heads} * spec.q_dim()});
    const Tensor values = ws.output(kBF16, {rows, int64_t{c.heads} * kValue});
    const Stack absorb(ws, *ops, c.heads, kRank, kNope), value(ws, *ops, c.heads, kValue, kRank);
    Arena arena(
        Buffer::pinned(static_cast<size_t>(rows) * static_cast<size_t>(c.heads) * 2048 + 4096));
    ws.begin_op({values});
    ops->begin_step(batch, {});
    ops->latent_attend(values, q, absorb.w, value.w, spec, batch, cache, arena);
    ws.end_op();
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < values.cols(); ++i) ASSERT_FALSE(std::isnan(at(values, r, i))) << r;
    for (int64_t r = paged.batch.num_tokens; r < rows; ++r)
      for (int64_t i = 0; i < values.cols(); ++i) ASSERT_EQ(at(values, r, i), 0) << r;
    check(c, spec, ws, paged, q, values, absorb.met, value.met);
  }

  // The first row of a sequence, its last, and two others.
  void check(const Spans& c, const Mla& spec, Workspace& ws, const Paged& paged, const Tensor& q,
             const Tensor& values, const Tensor& absorb, const Tensor& value) {
    Errors errors;
    std::vector<int32_t> order = ws.rng.shuffled(static_cast<int>(c.pieces.size()));
    std::erase_if(order, [&](int32_t s) { return c.pieces[static_cast<size_t>(s)].rows == 0; });
    for (size_t i = 0; i < c.checked; ++i) {
      const int32_t seq = order[i % order.size()];
      const Piece& piece = c.pieces[static_cast<size_t>(seq)];
      const int head = i == 0 ? c.heads - 1 : ws.rng.below(c.heads);
      const HeadCache cache(paged, seq, piece.begin + piece.rows, absorb, value, head);
      for (const int row :
           {0, piece.rows - 1, ws.rng.below(piece.rows), ws.rng.below(piece.rows)}) {
        const int64_t at_row = paged.batch.host_row_start[static_cast<size_t>(seq)] + row;
        expect_head(values.row_range(at_row, 1).col_range(int64_t{head} * kValue, kValue),
                    q.row_range(at_row, 1).col_range(int64_t{head} * spec.q_dim(), spec.q_dim()),
                    spec, cache, absorb, value, head, piece.begin + row, errors);
      }
    }
    // Four or five roundings of keys, values, weights and results add up as squares, each of about
    // 0.4 units; a position too many or too few of a thousand would be eight units.
    EXPECT_LT(std::sqrt(errors.squares / errors.all), 3 * kBf16Round);
  }
};

TEST_P(ExpandedLatents, AmongDecodesAndChecks) {
  if (!takes_many()) GTEST_SKIP() << "one form for all: OpSuite.AbsorbedIsUnabsorbed covers it";
  const std::vector<Piece> mixed = {{0, 1},  {0, 300},  {1000, 200}, {500, 1}, {0, 128},
                                    {70, 0}, {63, 129}, {900, 2},    {0, 40},  {1500, 450}};
  for (const bool quantized : {false, true}) {
    attend({.heads = 16, .pieces = mixed, .quantized = quantized, .padding = 3, .checked = 9});
    attend({.heads = 3, .pieces = {{40, 300}, {500, 4}, {7, 1}}, .quantized = quantized});
    attend({.heads = 128, .pieces = {{130, 190}, {40, 2}, {0, 257}}, .quantized = quantized});
  }
}

TEST_P(ExpandedLatents, PromptsAlone) {
  if (!takes_many()) GTEST_SKIP() << "one form for all: OpSuite.AbsorbedIsUnabsorbed covers it";
  attend({.heads = 1, .pieces = {{0, 1300}}});
  attend({.heads = 32, .pieces = {{0, 700}}, .page_size = 128, .padding = 5, .checked = 2});
  attend({.heads = 2, .pieces = std::vector<Piece>(45, {0, 250})});
  attend({.heads = 16, .pieces = {{100, 250}, {0, 130}}, .page_size = 16});
}

// Contexts of which keys and values of some heads at a time fit, or latents of some positions.
TEST_P(ExpandedLatents, LongContexts) {
  if (!takes_many()) GTEST_SKIP() << "one form for all: OpSuite.AbsorbedIsUnabsorbed covers it";
  attend({.heads = 128, .pieces = {{3800, 250}}, .checked = 3});
  attend({.heads = 1, .pieces = {{16300, 400}}, .quantized = true, .checked = 1});
}

INSTANTIATE_TEST_SUITE_P(Backends, ExpandedLatents, testing::ValuesIn(backends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skiff::suite

// heads_linear, mla_store and mla_attend.
#include <algorithm>

#include "ops/suite/latent.h"

namespace skiff::suite {
namespace {

void heads_case(Ops& ops, const HeadsCase& c, DType act) {
  SCOPED_TRACE(fmt::format("{} tokens, {} heads of [{}, {}], gap {}, {}", c.tokens, c.heads, c.out,
                           c.in, c.gap, name(act)));
  Workspace ws(static_cast<uint64_t>(c.tokens * 31 + c.in));
  const int64_t rows = int64_t{c.tokens} * c.heads;
  const Tensor x = ws.random(act, {rows, c.in}, 1, c.gap);
  const Tensor out = ws.output(act, {rows, c.out}, c.gap / 2);
  Tensor met;
  Buffer owner;
  const Linear w = stack_of(ws, ops, c, act, &met, &owner);
  ws.begin_op({out});
  ops.heads_linear(out, x, w);
  ws.end_op();
  expect_near(out, [&](int64_t r, int64_t o) {
    double sum = 0, size = 0;
    for (int i = 0; i < c.in; ++i) {
      const double product = at(x, r, i) * at(met, r % c.heads, o * c.in + i);
      sum += product;
      size += std::abs(product);
    }
    return Approx{sum, (c.in + 2.0) * kF32Round * size};
  });
}

TEST_P(OpSuite, HeadsLinear) {
  for (const DType act : {DType::kF32, DType::kBF16}) {
    heads_case(*ops, {0, 4, 16, 8}, act);
    heads_case(*ops, {1, 1, 5, 3}, act);
    heads_case(*ops, {3, 4, 20, 12, 8}, act);  // the nope part of queries of 12 + 8
    heads_case(*ops, {7, 3, 10, 20}, act);
    heads_case(*ops, {33, 16, 512, 128, 64}, act);
    heads_case(*ops, {5, 16, 128, 512}, act);
    for (const int tokens : {1, 2, 3, 4, 17, 32, 33}) {  // few rows have kernels of their own
      heads_case(*ops, {tokens, 16, 512, 128, 64}, act);
      heads_case(*ops, {tokens, 3, 128, 512, 8}, act);
    }
    heads_case(*ops, {600, 2, 16, 33}, act);
  }
}

TEST_P(OpSuite, HeadsLinearRowsAreIndependent) {
  if (!ops->batch_invariant()) GTEST_SKIP() << "this backend promises less";
  for (const DType act : {DType::kF32, DType::kBF16}) {
    Workspace ws(4);
    constexpr HeadsCase kCase{41, 3, 40, 64};
    const Tensor x = ws.random(act, {int64_t{kCase.tokens} * kCase.heads, kCase.in});
    const Tensor out = ws.output(act, {int64_t{kCase.tokens} * kCase.heads, kCase.out});
    Tensor met;
    Buffer owner;
    const Linear w = stack_of(ws, *ops, kCase, act, &met, &owner);
    expect_rows_independent(kCase.tokens, [&](int begin, int count) {
      const int64_t first = int64_t{begin} * kCase.heads, rows = int64_t{count} * kCase.heads;
      ops->heads_linear(out.row_range(first, rows), x.row_range(first, rows), w);
      finish();
      RowBytes bytes;
      for (int t = begin; t < begin + count; ++t)
        bytes.push_back(all_bytes(out.row_range(int64_t{t} * kCase.heads, kCase.heads)));
      return bytes;
    });
  }
}

// A vector rotated in place, straight from the definition; `first` is its place in the row.
std::vector<double> turned(const Tensor& x, int64_t row, int64_t first, const Rope& rope,
                           int position) {
  const auto n = static_cast<size_t>(rope.dim);
  std::vector<double> y(n);
  const std::vector<float> speeds = rope_frequencies(rope);
  for (size_t i = 0; i < speeds.size(); ++i) {
    const size_t a = rope.interleaved ? 2 * i : i;
    const size_t b = rope.interleaved ? 2 * i + 1 : i + speeds.size();
    const double angle = static_cast<double>(static_cast<float>(position) * speeds[i]);
    const double c = std::cos(angle) * rope_gain(rope), s = std::sin(angle) * rope_gain(rope);
    const double u = at(x, row, first + static_cast<int64_t>(a));
    const double v = at(x, row, first + static_cast<int64_t>(b));
    y[a] = u * c - v * s;
    y[b] = v * c + u * s;
  }
  return y;
}

// A dozen roundings cover sine, cosine, gain and the two products, each up to the pair's length.
Approx turned_approx(const std::vector<double>& y, const Rope& rope, int64_t i) {
  const int64_t half = rope.dim / 2;
  const int64_t partner = rope.interleaved ? (i ^ 1) : (i + half) % rope.dim;
  const double length = std::hypot(y[static_cast<size_t>(i)], y[static_cast<size_t>(partner)]);
  return {y[static_cast<size_t>(i)], 12 * 2 * kF32Round * length};
}

void store_case(Ops& ops, const Mla& spec, DType act, DType cache, const std::vector<Piece>& pieces,
                Pool pool = Pool::kBlocks) {
  SCOPED_TRACE(fmt::format("{} heads, rank {}, rope {}, {}, cache {}", spec.heads, spec.kv_rank,
                           spec.rope_dim, name(act), name(cache)));
  Workspace ws(static_cast<uint64_t>(spec.kv_rank * 7 + spec.heads));
  Paged paged(ws, cached(spec), cache, 64, pieces, pool);
  const int64_t rows = paged.batch.num_tokens, q_cols = int64_t{spec.heads} * spec.q_dim();
  const Tensor q = ws.random(act, {rows, q_cols}, 2), before = ws.output(act, {rows, q_cols});
  convert(before, q);
  // The latent lies where a fused projection leaves it: at the end of longer rows.
  const Tensor wide = ws.random(DType::kF32, {rows, 24 + spec.cached_dim()}, 3);
  const Tensor kv = wide.col_range(24, spec.cached_dim());
  const Norm norm{.weight = ws.random(DType::kF32, {spec.kv_rank}), .eps = 1e-6f};
  std::vector<Tensor> writable = paged.written_rows();
  writable.push_back(q);
  ws.begin_op(writable);
  ops.begin_step(paged.batch, {});
  ops.mla_store(q, kv, norm, spec, paged.batch, latents(paged));
  ws.end_op();
  for (int64_t r = 0; r < rows; ++r) {
    const int position = paged.batch.positions.as<int32_t>()[r];
    for (int h = 0; h < spec.heads; ++h) {
      const int64_t head = int64_t{h} * spec.q_dim();
      for (int64_t i = head; i < head + spec.nope_dim; ++i)
        ASSERT_EQ(at(q, r, i), at(before, r, i)) << "row " << r << ", head " << h;
      const auto want = turned(before, r, head + spec.nope_dim, spec.rope, position);
      expect_near(q.row_range(r, 1).col_range(head + spec.nope_dim, spec.rope_dim),
                  [&](int64_t, int64_t i) { return turned_approx(want, spec.rope, i); });
    }
    double squares = 0;
    for (int i = 0; i < spec.kv_rank; ++i) squares += at(kv, r, i) * at(kv, r, i);
    const double scale = 1 / std::sqrt(squares / spec.kv_rank + static_cast<double>(norm.eps));
    const auto key = turned(kv, r, spec.kv_rank, spec.rope, position);
    // The norm's sum of squares counts half.
    expect_near(paged.cache_row(paged.kv.k, paged.seq_of(r), position), [&](int64_t, int64_t i) {
      if (i >= spec.kv_rank) return turned_approx(key, spec.rope, i - spec.kv_rank);
      const double value = at(kv, r, i) * scale * at(norm.weight, i);
      return Approx{value, (spec.kv_rank / 2.0 + 8) * kF32Round * std::abs(value)};
    });
  }
}

TEST_P(OpSuite, MlaStoreNormsRotatesAndPages) {
  for (const DType act : {DType::kF32, DType::kBF16}) {
    for (const DType cache : {DType::kF32, DType::kBF16})
      for (const Pool pool : kPools) store_case(*ops, mla(4, 20, 8), act, cache, kMixed, pool);
    store_case(*ops, mla(3, 32, 16, 8, false), act, act, kMixed);
    store_case(*ops, mla(16, 512, 64, 128), act, act, kMixed);
  }
}

// DeepSeek's own numbers, at positions beyond the original context; the gain is not theirs, 1.
TEST_P(OpSuite, MlaStoreFollowsYarn) {
  Mla spec = mla(2, 64, 64, 128);
  const std::vector<Piece> pieces = {{4090, 12}, {5000, 2}, {0, 3}, {9999, 1}};
  for (const float gain : {1.0f, 0.902f}) {
    spec.rope.scaling = YarnScaling{.factor = 40, .original_ctx = 4096, .attention_factor = gain};
    store_case(*ops, spec, DType::kF32, DType::kF32, pieces);
    store_case(*ops, spec, DType::kBF16, DType::kBF16, pieces);
  }
}

// The queries of a row and the vectors that its heads should get; rows * heads of each.
struct Queries {
  Tensor latent, rope;
};

// Judges a row as attention_test.cc judges gqa_attend's, with keys and values of different widths.
void expect_mean(const Tensor& out, const Queries& q, const Mla& spec, const Paged& paged, int seq,
                 int position, int64_t row) {
  const auto rank = static_cast<size_t>(spec.kv_rank);
  std::vector<double> score, total(rank), size(rank);
  double score_bound = 0, best = -INFINITY, sum = 0;
  std::vector<std::vector<double>> keys;
  for (int t = 0; t <= position; ++t) {
    const std::vector<double>& c = keys.emplace_back(paged.keys(seq, t));
    double s = 0, absolute = 0;
    for (int i = 0; i < spec.cached_dim(); ++i) {
      const double x = i < spec.kv_rank ? at(q.latent, row, i) : at(q.rope, row, i - spec.kv_rank);
      s += x * c[static_cast<size_t>(i)];
      absolute += std::abs(x * c[static_cast<size_t>(i)]);
    }
    const auto scale = static_cast<double>(spec.scale);
    score.push_back(s * scale);
    best = std::max(best, score.back());
    score_bound = std::max(score_bound, (spec.cached_dim() + 6) * kF32Round * absolute * scale);
  }
  for (size_t t = 0; t < keys.size(); ++t) {
    const double weight = std::exp(score[t] - best);
    sum += weight;
    for (size_t i = 0; i < rank; ++i) {
      total[i] += weight * keys[t][i];
      size[i] += std::abs(weight * keys[t][i]);
    }
  }
  const bool narrow = q.latent.dtype == DType::kBF16 && paged.kv.k.dtype == DType::kBF16;
  const double bound =
      2 * score_bound + (2.0 * (position + 1) + 32) * kF32Round + (narrow ? kBf16Round : 0);
  expect_near(out.row_range(row, 1), [&](int64_t, int64_t i) {
    const auto at_i = static_cast<size_t>(i);
    return Approx{total[at_i] / sum, bound * size[at_i] / sum};
  });
}

void attend_case(Ops& ops, const Mla& spec, DType act, DType cache,
                 const std::vector<Piece>& pieces, int checked = 1 << 20,
                 Pool pool = Pool::kBlocks) {
  SCOPED_TRACE(fmt::format("{} heads, rank {}, rope {}, {}, cache {}, pool {}", spec.heads,
                           spec.kv_rank, spec.rope_dim, name(act), name(cache),
                           static_cast<int>(pool)));
  Workspace ws(static_cast<uint64_t>(spec.kv_rank * 7 + spec.heads));
  Paged paged(ws, cached(spec), cache, 64, pieces, pool);
  const int64_t heads = spec.heads, rows = paged.batch.num_tokens * heads;
  const Tensor q = ws.random(act, {rows, spec.q_dim()});
  const Queries queries{ws.random(act, {rows, spec.kv_rank}),
                        q.col_range(spec.nope_dim, spec.rope_dim)};
  const Tensor out = ws.output(act, {rows, spec.kv_rank});
  ws.begin_op({out});
  ops.begin_step(paged.batch, {});
  ops.mla_attend(out, queries.latent, queries.rope, spec, paged.batch, latents(paged));
  ws.end_op();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < out.cols(); ++i) ASSERT_FALSE(std::isnan(at(out, r, i))) << r;
  std::vector<int32_t> chosen = ws.rng.shuffled(static_cast<int>(rows));
  chosen.resize(std::min(chosen.size(), static_cast<size_t>(checked)));
  for (const int32_t r : chosen) {
    const int64_t token = r / heads;
    expect_mean(out, queries, spec, paged, paged.seq_of(token),
                paged.batch.positions.as<int32_t>()[token], r);
  }
}

TEST_P(OpSuite, MlaAttend) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const Pool pool : kPools) attend_case(*ops, mla(4, 20, 8), type, type, kMixed, 400, pool);
    attend_case(*ops, mla(3, 18, 6), type, type, kMixed, 400);
    attend_case(*ops, mla(16, 512, 64, 128), type, type, kMixed, 60);
    attend_case(*ops, mla(128, 512, 64, 128), type, type, {{70, 1}, {5, 3}, {0, 9}}, 60);
    attend_case(*ops, mla(2, 64, 16), type, type, {{1500, 3}, {500, 40}, {1023, 2}, {0, 1}}, 30);
  }
  attend_case(*ops, mla(4, 20, 8), DType::kF32, DType::kBF16, kMixed, 200);
  attend_case(*ops, mla(4, 20, 8), DType::kBF16, DType::kF32, kMixed, 200);
}

}  // namespace
}  // namespace skiff::suite

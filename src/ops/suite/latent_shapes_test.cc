// mla_attend in the shape classes of its fast kernels on a device: bf16, a latent of 512 + 64, any
// number of heads, pages of many sizes, one row or many of a sequence, a cache of bf16 or of 8-bit
// rows.
#include <algorithm>

#include "ops/suite/latent.h"

namespace skiff::suite {
namespace {

constexpr DType kBF16 = DType::kBF16;

struct LatentQueries {
  Tensor latent, rope;
};

// What a query vector should get, by the formula in double. Scores add 576 products in f32, and the
// weights of values are rounded to bf16.
void expect_vector(const Tensor& out, const LatentQueries& q, const Mla& spec, const Paged& paged,
                   int64_t vector) {
  const int64_t row = vector / spec.heads;
  const int position = paged.batch.positions.as<int32_t>()[row];
  std::vector<std::vector<double>> keys;
  std::vector<double> score;
  double bound = 0, best = -INFINITY;
  for (int t = 0; t <= position; ++t) {
    const std::vector<double>& c = keys.emplace_back(paged.keys(paged.seq_of(row), t));
    double sum = 0, size = 0;
    for (int i = 0; i < spec.cached_dim(); ++i) {
      const double x =
          i < spec.kv_rank ? at(q.latent, vector, i) : at(q.rope, vector, i - spec.kv_rank);
      sum += x * c[static_cast<size_t>(i)], size += std::abs(x * c[static_cast<size_t>(i)]);
    }
    const auto scale = static_cast<double>(spec.scale);
    score.push_back(sum * scale);
    best = std::max(best, score.back());
    bound = std::max(bound, (spec.cached_dim() + 6) * kF32Round * size * scale);
  }
  std::vector<double> total(static_cast<size_t>(spec.kv_rank)), size(total.size());
  double sum = 0;
  for (size_t t = 0; t < keys.size(); ++t) {
    const double weight = std::exp(score[t] - best);
    sum += weight;
    for (size_t i = 0; i < total.size(); ++i) {
      total[i] += weight * keys[t][i];
      size[i] += std::abs(weight * keys[t][i]);
    }
  }
  bound = 2 * bound + (2.0 * (position + 1) + 32) * kF32Round + kBf16Round;
  expect_near(out.row_range(vector, 1), [&](int64_t, int64_t i) {
    const auto at_i = static_cast<size_t>(i);
    return Approx{total[at_i] / sum, bound * size[at_i] / sum};
  });
}

// Latents as bf16, or as 8-bit rows that lie in pages so many bytes further apart.
struct Stored {
  bool rows = false;
  int64_t gap = 0;
};

KvLayer stored(Workspace& ws, const Paged& paged, const Mla& spec, const Stored& how) {
  return how.rows ? make_rows(ws, paged, spec, how.gap) : latents(paged);
}

// The host's backends have one kernel for all shapes, so they see one case of each kind only.
class LatentShapes : public OpSuite {
 protected:
  bool device() const { return ops->device() != Device{}; }
  bool slow() const { return ops->name() == "reference"; }

  void attend(int heads, int page_size, const std::vector<Piece>& pieces, int checked = 40,
              Pool pool = Pool::kApart, const Stored& how = {}) {
    SCOPED_TRACE(fmt::format("{} heads, pages of {}, {} sequences, pool {}, {}", heads, page_size,
                             pieces.size(), static_cast<int>(pool), how.rows ? "rows" : "bf16"));
    const Mla spec = deepseek(heads);
    Workspace ws(static_cast<uint64_t>(heads * 1000 + page_size));
    Paged paged(ws, cached(spec), kBF16, page_size, pieces, pool);
    const KvLayer cache = stored(ws, paged, spec, how);
    const int64_t vectors = int64_t{paged.batch.num_tokens} * heads;
    const Tensor q = ws.random(kBF16, {vectors, spec.q_dim()});
    const LatentQueries queries{ws.random(kBF16, {vectors, spec.kv_rank}),
                                q.col_range(spec.nope_dim, spec.rope_dim)};
    const Tensor out = ws.output(kBF16, {vectors, spec.kv_rank});
    ws.begin_op({out});
    ops->begin_step(paged.batch, {});
    ops->mla_attend(out, queries.latent, queries.rope, spec, paged.batch, cache);
    ws.end_op();
    for (int64_t v = 0; v < vectors; ++v)
      for (int64_t i = 0; i < out.cols(); ++i) ASSERT_FALSE(std::isnan(at(out, v, i))) << v;
    std::vector<int32_t> chosen = ws.rng.shuffled(static_cast<int>(vectors));
    // The last vectors of all sequences are among those that are compared.
    std::ranges::stable_partition(chosen, [&](int32_t v) {
      return v + 1 == vectors || paged.seq_of(v / heads) != paged.seq_of((v + 1) / heads);
    });
    chosen.resize(std::min(chosen.size(), static_cast<size_t>(checked)));
    for (const int32_t v : chosen) expect_vector(out, queries, spec, paged, v);
  }
};

TEST_P(LatentShapes, DecodeOfEveryNumberOfHeads) {
  if (slow()) GTEST_SKIP() << "OpSuite.MlaAttend covers it";
  for (const int heads :
       device() ? std::vector<int>{1, 16, 20, 32, 64, 65, 127, 128} : std::vector<int>{20})
    attend(heads, 64, kLatentDecode);
}

TEST_P(LatentShapes, FewRowsShareTiles) {
  if (slow()) GTEST_SKIP() << "OpSuite.MlaAttend covers it";
  for (const int heads : device() ? std::vector<int>{1, 7, 16, 32, 64, 128} : std::vector<int>{7})
    attend(heads, 64, kLatentFewRows);
}

TEST_P(LatentShapes, ChunksOfPrompts) {
  if (!device()) GTEST_SKIP() << "one kernel for all: OpSuite.MlaAttend covers it";
  for (const int heads : {1, 16, 20, 128}) attend(heads, 64, kLatentChunks);
}

TEST_P(LatentShapes, EveryPageSize) {
  if (!device()) GTEST_SKIP() << "one kernel for all: OpSuite.MlaAttend covers it";
  for (const int page : {16, 48, 64, 128, 192}) {
    attend(16, page, {{300, 1}, {0, 1}, {63, 2}, {130, 1}}, 20);
    attend(128, page, {{300, 3}, {0, 1}, {63, 2}}, 20);
  }
  for (const Pool pool : {Pool::kBlocks, Pool::kPadded})
    attend(16, 64, {{300, 1}, {0, 1}, {63, 2}}, 20, pool);
}

// More sequences than blocks; more work on one than on all others; one alone, cut into as many
// shares as there are blocks.
TEST_P(LatentShapes, UnevenContexts) {
  if (!device()) GTEST_SKIP() << "one kernel for all: OpSuite.MlaAttend covers it";
  std::vector<Piece> many(200, Piece{70, 1});
  attend(16, 64, many, 20);
  many[77] = {9000, 1};
  attend(16, 64, many, 8);
  attend(128, 64, {{9000, 1}}, 6);
  attend(32, 64, {{9000, 3}, {10, 1}}, 6);
}

// What a row stands for is exact in bf16, so attention over rows is held to the same bound.
TEST_P(LatentShapes, RowsOfEightBits) {
  if (!device()) GTEST_SKIP() << "OpSuite.AttendOverRowsIsAttendOverTheirValues covers it";
  const auto rows = [&](int heads, int page, const std::vector<Piece>& pieces, int checked,
                        int64_t gap = 0) {
    attend(heads, page, pieces, checked, Pool::kApart, {.rows = true, .gap = gap});
  };
  for (const int heads : {1, 4, 16, 17, 20, 32, 33, 64, 65, 128})
    rows(heads, 64, kLatentDecode, 30);
  for (const int heads : {1, 7, 16, 32, 128}) rows(heads, 64, kLatentFewRows, 30, 48);
  for (const int heads : {1, 20, 128}) rows(heads, 64, kLatentChunks, 30);
  for (const int page : {16, 48, 128, 192})
    rows(16, page, {{300, 1}, {0, 1}, {63, 2}, {130, 1}}, 20, 16);
  for (const int heads : {8, 16, 32}) rows(heads, 64, {{300, 2}, {64, 1}, {63, 2}}, 20);
  std::vector<Piece> many(200, Piece{70, 1});
  many[77] = {9000, 1};
  for (const int heads : {16, 32}) rows(heads, 64, many, 8);
  rows(128, 64, {{9000, 1}}, 6);
  rows(32, 64, {{9000, 3}, {10, 1}}, 6);
}

// Values past the context are any bits, and no NaN among them may come through.
TEST_P(LatentShapes, NothingPastTheContext) {
  if (slow()) GTEST_SKIP() << "it reads by position";
  const Mla spec = deepseek(16);
  for (const int length : {1, 17, 63, 65, 200}) {
    Workspace ws(static_cast<uint64_t>(length));
    Paged paged(ws, cached(spec), kBF16, 64, {{length - 1, 1}});
    const auto page = paged.batch.pages.row<int32_t>(0)[(length - 1) / 64];
    const Tensor last = paged.kv.k.row_range(page, 1);
    for (int64_t i = ((length - 1) % 64 + 1) * int64_t{spec.cached_dim()}; i < last.cols(); ++i)
      put(last, 0, i, std::nan(""));
    const Tensor q = ws.random(kBF16, {16, spec.q_dim()});
    const LatentQueries queries{ws.random(kBF16, {16, spec.kv_rank}),
                                q.col_range(spec.nope_dim, spec.rope_dim)};
    const Tensor out = ws.output(kBF16, {16, spec.kv_rank});
    ops->begin_step(paged.batch, {});
    ops->mla_attend(out, queries.latent, queries.rope, spec, paged.batch, latents(paged));
    finish();
    for (int64_t v = 0; v < 16; ++v) expect_vector(out, queries, spec, paged, v);
  }
}

// A row in company, alone, and as part of a chunk: the same bits where the backend promises that.
void company_case(Ops* ops, bool device, const Stored& how) {
  for (const int heads : device ? std::vector<int>{16, 20, 128} : std::vector<int>{4}) {
    const Mla spec = deepseek(heads);
    Workspace ws(static_cast<uint64_t>(heads));
    const std::vector<Piece> pieces = {{0, 150}, {300, 1}, {40, 3}};
    Paged paged(ws, cached(spec), kBF16, 64, pieces);
    const KvLayer cache = stored(ws, paged, spec, how);
    const int64_t rows = paged.batch.num_tokens;
    const Tensor q = ws.random(kBF16, {rows * heads, spec.q_dim()});
    const Tensor latent = ws.random(kBF16, {rows * heads, spec.kv_rank});
    // Rows [first, first + n) of the first sequence, with all of the others or without.
    const auto run = [&](int first, int n, bool company) {
      Workspace step(1);
      const Stepped now =
          paged.step(step, company ? std::vector<size_t>{2, 0, 1} : std::vector<size_t>{0},
                     company ? std::vector<Piece>{{40, 3}, {first, n}, {300, 1}}
                             : std::vector<Piece>{{first, n}});
      const int64_t before = company ? 3 : 0, count = now.batch.num_tokens;
      const Tensor q_now = step.random(kBF16, {count * heads, spec.q_dim()});
      const Tensor latent_now = step.random(kBF16, {count * heads, spec.kv_rank});
      const Tensor out_now = step.output(kBF16, {count * heads, spec.kv_rank});
      convert(q_now.row_range(before * heads, int64_t{n} * heads),
              q.row_range(int64_t{first} * heads, int64_t{n} * heads));
      convert(latent_now.row_range(before * heads, int64_t{n} * heads),
              latent.row_range(int64_t{first} * heads, int64_t{n} * heads));
      ops->begin_step(now.batch, {});
      ops->mla_attend(out_now, latent_now, q_now.col_range(spec.nope_dim, spec.rope_dim), spec,
                      now.batch, cache);
      ops->wait(ops->mark());
      return all_bytes(out_now.row_range(before * heads, int64_t{n} * heads));
    };
    const std::vector<std::byte> whole = run(0, 150, true);
    const auto each = static_cast<std::ptrdiff_t>(whole.size() / 150);
    for (const auto& [first, n] :
         {std::pair{0, 150}, {149, 1}, {70, 3}, {0, 1}, {63, 2}, {60, 80}}) {
      const std::vector<std::byte> part = run(first, n, first % 2 == 0);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first * each))
          << heads << " heads, rows " << first << " and " << n - 1 << " more";
    }
  }
}

TEST_P(LatentShapes, RowsDoNotDependOnCompany) {
  if (!ops->batch_invariant() || slow()) GTEST_SKIP() << "this backend promises less";
  for (const bool rows : {false, true}) company_case(ops.get(), device(), {.rows = rows});
}

INSTANTIATE_TEST_SUITE_P(Backends, LatentShapes, testing::ValuesIn(backends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skiff::suite

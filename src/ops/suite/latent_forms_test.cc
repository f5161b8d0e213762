// Latent attention from end to end: however a prompt is cut, and against keys and values of each
// head.
#include <algorithm>
#include <iterator>

#include "ops/suite/latent.h"

namespace skiff::suite {
namespace {

// Prompts that go through mla_store and mla_attend, cut into steps of `chunk` rows, on pages of
// their own. Returns the bytes of every row.
RowBytes run_prompts(Ops& ops, const Mla& spec, DType act, bool quantized,
                     const std::vector<int>& lengths, int chunk, uint64_t page_seed) {
  Workspace data(7);
  const int64_t heads = spec.heads, q_cols = heads * spec.q_dim();
  const Norm norm{.weight = data.random(DType::kF32, {spec.kv_rank}), .eps = 1e-6f};
  std::vector<Piece> whole;
  std::vector<Tensor> qs, kvs, absorbed;
  for (const int n : lengths) {
    whole.push_back({0, n});
    qs.push_back(data.random(act, {n, q_cols}));
    kvs.push_back(data.random(DType::kF32, {n, spec.cached_dim()}));
    absorbed.push_back(data.random(act, {n, heads * spec.kv_rank}));
  }
  Workspace pages(page_seed);
  Paged paged(pages, cached(spec), act, 16, whole);
  const KvLayer cache = quantized ? make_rows(pages, paged, spec) : latents(paged);
  std::vector<RowBytes> result(lengths.size());
  const int longest = *std::ranges::max_element(lengths);
  for (int begin = 0; begin < longest; begin += chunk) {
    Workspace ws(1);
    std::vector<size_t> order;
    std::vector<Piece> pieces;
    for (size_t s = 0; s < lengths.size(); ++s) {
      order.push_back(s);
      pieces.push_back({std::min(begin, lengths[s]), std::clamp(lengths[s] - begin, 0, chunk)});
    }
    const Stepped now = paged.step(ws, order, pieces);
    const int64_t rows = now.batch.num_tokens;
    const Tensor q = ws.output(act, {rows, q_cols});
    const Tensor kv = ws.output(DType::kF32, {rows, spec.cached_dim()});
    const Tensor latent = ws.output(act, {rows, heads * spec.kv_rank});
    const Tensor out = ws.output(act, {rows, heads * spec.kv_rank});
    int64_t row = 0;
    for (size_t s = 0; s < lengths.size(); row += pieces[s++].rows) {
      convert(q.row_range(row, pieces[s].rows), qs[s].row_range(pieces[s].begin, pieces[s].rows));
      convert(kv.row_range(row, pieces[s].rows), kvs[s].row_range(pieces[s].begin, pieces[s].rows));
      convert(latent.row_range(row, pieces[s].rows),
              absorbed[s].row_range(pieces[s].begin, pieces[s].rows));
    }
    const auto by_head = [&](const Tensor& t) {
      return t.reshaped({rows * heads, t.cols() / heads});
    };
    ops.begin_step(now.batch, {});
    ops.mla_store(q, kv, norm, spec, now.batch, cache);
    ops.mla_attend(by_head(out), by_head(latent),
                   by_head(q).col_range(spec.nope_dim, spec.rope_dim), spec, now.batch, cache);
    ops.wait(ops.mark());
    row = 0;
    for (size_t s = 0; s < lengths.size(); ++s)
      for (int r = 0; r < pieces[s].rows; ++r, ++row) result[s].push_back(row_bytes(out, row));
  }
  RowBytes all;
  for (RowBytes& rows : result) std::ranges::move(rows, std::back_inserter(all));
  return all;
}

TEST_P(OpSuite, MlaDoesNotDependOnCutsOrPages) {
  if (!ops->batch_invariant()) GTEST_SKIP() << "this backend promises less";
  const std::vector<int> lengths = {70, 1, 133, 16};
  for (const Mla& spec : {mla(4, 20, 8), mla(16, 64, 16, 32), mla(100, 32, 16)})
    for (const DType act : {DType::kF32, DType::kBF16})
      for (const bool quantized : {false, true}) {
        if (ops->name() == "reference" && spec.heads > 16) continue;
        const auto run = [&](int chunk, uint64_t page_seed) {
          return run_prompts(*ops, spec, act, quantized, lengths, chunk, page_seed);
        };
        const RowBytes whole = run(1 << 20, 1);
        for (const int chunk : {1, 7, 16, 64, 100})
          EXPECT_TRUE(run(chunk, 3) == whole)
              << spec.heads << " heads, " << name(act) << (quantized ? " on rows" : "")
              << ", steps of " << chunk;
      }
}

// The absorbed form computes what a head of its own keys and values would: score = (q_nope . W_UK c
// + q_rope . k_rope) * scale, and the mean of W_UV c.
TEST_P(OpSuite, AbsorbedIsUnabsorbed) {
  const Mla spec = mla(3, 24, 8, 10);
  const int64_t heads = spec.heads;
  Workspace ws(12);
  Paged paged(ws, cached(spec), DType::kF32, 16, {{40, 2}, {3, 1}, {0, 5}});
  const int64_t rows = paged.batch.num_tokens * heads;
  const Tensor q = ws.random(DType::kF32, {rows, spec.q_dim()});
  const Tensor values = ws.output(DType::kF32, {rows, spec.v_dim});
  Tensor up_k, up_v;
  Buffer owner_k, owner_v;
  const Linear absorb = stack_of(ws, *ops, {0, spec.heads, spec.kv_rank, spec.nope_dim},
                                 DType::kF32, &up_k, &owner_k);
  const Linear value =
      stack_of(ws, *ops, {0, spec.heads, spec.v_dim, spec.kv_rank}, DType::kF32, &up_v, &owner_v);
  const Tensor nope = q.col_range(0, spec.nope_dim);
  ops->begin_step(paged.batch, {});
  Arena arena(Buffer::pinned(1 << 16));
  const int64_t tokens = rows / heads;
  ops->latent_attend(values.reshaped({tokens, heads * spec.v_dim}),
                     q.reshaped({tokens, heads * spec.q_dim()}), absorb, value, spec, paged.batch,
                     latents(paged), arena);
  EXPECT_EQ(arena.mark(), 0u);
  finish();
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t token = r / heads, h = r % heads;
    const int position = paged.batch.positions.as<int32_t>()[token];
    std::vector<std::vector<double>> cache;
    std::vector<double> score;
    double bound = 0, best = -INFINITY;
    for (int t = 0; t <= position; ++t) {
      const std::vector<double>& c = cache.emplace_back(paged.keys(paged.seq_of(token), t));
      double s = 0, absolute = 0;
      for (int n = 0; n < spec.nope_dim; ++n) {
        for (int i = 0; i < spec.kv_rank; ++i) {
          const double term =
              at(nope, r, n) * at(up_k, h, i * spec.nope_dim + n) * c[static_cast<size_t>(i)];
          s += term;
          absolute += std::abs(term);
        }
      }
      for (int i = 0; i < spec.rope_dim; ++i) {
        const int rope = spec.kv_rank + i;
        const double term = at(q, r, spec.nope_dim + i) * c[static_cast<size_t>(rope)];
        s += term;
        absolute += std::abs(term);
      }
      const auto scale = static_cast<double>(spec.scale);
      score.push_back(s * scale);
      best = std::max(best, score.back());
      // Two nested sums, the inner one rounded on the way out.
      bound =
          std::max(bound, (spec.nope_dim + spec.cached_dim() + 9) * kF32Round * absolute * scale);
    }
    expect_near(values.row_range(r, 1), [&](int64_t, int64_t o) {
      double total = 0, size = 0, sum = 0;
      for (size_t t = 0; t < cache.size(); ++t) {
        const double weight = std::exp(score[t] - best);
        sum += weight;
        for (int i = 0; i < spec.kv_rank; ++i) {
          const double term =
              weight * cache[t][static_cast<size_t>(i)] * at(up_v, h, o * spec.kv_rank + i);
          total += term;
          size += std::abs(term);
        }
      }
      const double stray = 2 * bound + (2.0 * (position + 1) + spec.kv_rank + 40) * kF32Round;
      return Approx{total / sum, stray * size / sum};
    });
  }
}

}  // namespace
}  // namespace skiff::suite

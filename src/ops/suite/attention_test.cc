// gqa_store and gqa_attend over paged caches.
#include <algorithm>
#include <iterator>
#include <ranges>

#include "ops/suite/attention.h"

#include "ops/kv_quant.h"

namespace skiff::suite {

Gqa gqa(int heads, int kv_heads, int head_dim, int window, int rope_dim, bool interleaved) {
  Gqa spec{.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim};
  spec.rope.dim = rope_dim < 0 ? head_dim : rope_dim;
  spec.rope.interleaved = interleaved;
  spec.window = window;
  return spec;
}

namespace {

// The RMS norm and rotation of one head, straight from their definitions.
std::vector<double> expected_head(const Tensor& before, int64_t row, int head, const Gqa& spec,
                                  const Norm& norm, int position) {
  const auto d = static_cast<size_t>(spec.head_dim);
  std::vector<double> x(d);
  double squares = 0;
  for (size_t i = 0; i < d; ++i) {
    x[i] = at(before, row, head * spec.head_dim + static_cast<int>(i));
    squares += x[i] * x[i];
  }
  for (size_t i = 0; norm.weight && i < d; ++i) {
    x[i] *= at(norm.weight, static_cast<int64_t>(i)) /
            std::sqrt(squares / spec.head_dim + static_cast<double>(norm.eps));
  }
  std::vector<double> y = x;
  const std::vector<float> speeds = rope_frequencies(spec.rope);
  for (size_t i = 0; i < speeds.size(); ++i) {
    const size_t a = spec.rope.interleaved ? 2 * i : i;
    const size_t b = spec.rope.interleaved ? 2 * i + 1 : i + speeds.size();
    const double angle = static_cast<double>(static_cast<float>(position) * speeds[i]);
    y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
    y[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
  }
  return y;
}

// Each rotated value is a sum of two products, of sizes up to the pair's length; the norm's sum
// of d squares counts half. A dozen roundings cover sine, cosine and the rest.
double head_bound(const std::vector<double>& y, const Gqa& spec, int i) {
  const int half = spec.rope.dim / 2;
  int partner = i;
  if (i < spec.rope.dim) {
    partner = spec.rope.interleaved ? (i ^ 1) : (i < half ? i + half : i - half);
  }
  const double length = std::hypot(y[static_cast<size_t>(i)], y[static_cast<size_t>(partner)]);
  return (spec.head_dim / 2.0 + 12) * 2 * kF32Round * length;
}

struct StoreCase {
  DType act, cache;
  int page_size;
  bool norms;
  Pool pool = Pool::kBlocks;
};

void store_case(Ops& ops, const Gqa& spec, const StoreCase& c) {
  const auto [act, cache, page_size, norms, pool] = c;
  SCOPED_TRACE(fmt::format("heads {}/{} dim {} rope {} act {} cache {} page {} norms {} pool {}",
                           spec.heads, spec.kv_heads, spec.head_dim, spec.rope.dim, name(act),
                           name(cache), page_size, norms, static_cast<int>(pool)));
  Workspace ws(static_cast<uint64_t>(spec.head_dim * 100 + spec.heads));
  Paged paged(ws, spec, cache, page_size, kMixed, pool);
  const int64_t cols = int64_t{spec.heads + 2 * spec.kv_heads} * spec.head_dim;
  const int64_t rows = paged.batch.num_tokens;
  const Tensor qkv = ws.random(act, {rows, cols}, 2), before = ws.output(act, {rows, cols});
  convert(before, qkv);
  const Tensor weight = ws.random(DType::kF32, {2, spec.head_dim});
  Norm q, k;
  if (norms) {
    q = {.weight = weight.row_range(0, 1).reshaped({spec.head_dim}), .eps = 1e-5f};
    k = {.weight = weight.row_range(1, 1).reshaped({spec.head_dim}), .eps = 1e-3f};
  }
  std::vector<Tensor> writable = paged.written_rows();
  writable.push_back(qkv);
  ws.begin_op(writable);
  ops.begin_step(paged.batch, {});
  ops.gqa_store(qkv, q, k, spec, paged.batch, paged.kv);
  ws.end_op();
  const int rotated = spec.heads + spec.kv_heads;
  for (int64_t r = 0; r < rows; ++r) {
    const int position = paged.batch.positions.as<int32_t>()[r];
    for (int h = 0; h < rotated; ++h) {
      const std::vector<double> want =
          expected_head(before, r, h, spec, h < spec.heads ? q : k, position);
      const Tensor got = qkv.row_range(r, 1).col_range(int64_t{h} * spec.head_dim, spec.head_dim);
      expect_near(got, [&](int64_t, int64_t i) {
        return Approx{want[static_cast<size_t>(i)], head_bound(want, spec, static_cast<int>(i))};
      });
    }
    const int64_t kv_cols = int64_t{spec.kv_heads} * spec.head_dim;
    const Tensor stored_k = paged.cache_row(paged.kv.k, paged.seq_of(r), position);
    const Tensor stored_v = paged.cache_row(paged.kv.v, paged.seq_of(r), position);
    for (int64_t c = 0; c < kv_cols; ++c) {
      const int64_t k_at = int64_t{spec.heads} * spec.head_dim + c;
      ASSERT_EQ(at(qkv, r, k_at + kv_cols), at(before, r, k_at + kv_cols));
      ASSERT_EQ(at(stored_k, 0, c), rounded(at(qkv, r, k_at), cache)) << "row " << r;
      ASSERT_EQ(at(stored_v, 0, c), rounded(at(qkv, r, k_at + kv_cols), cache)) << "row " << r;
    }
  }
}

void store_case(Ops& ops, const Gqa& spec, DType act, DType cache, int page_size, bool norms) {
  for (const Pool pool : kPools) store_case(ops, spec, {act, cache, page_size, norms, pool});
}

TEST_P(OpSuite, StoreRotatesNormsAndPages) {
  for (DType act : {DType::kF32, DType::kBF16}) {
    for (DType cache : {DType::kF32, DType::kBF16}) {
      for (bool norms : {false, true}) {
        store_case(*ops, gqa(4, 2, 64), act, cache, 64, norms);
        store_case(*ops, gqa(3, 1, 8, 0, 8, true), act, cache, 16, norms);
      }
    }
    store_case(*ops, gqa(2, 2, 80, 0, 32), act, act, 64, true);
    store_case(*ops, gqa(3, 1, 10), act, act, 64, true);
    store_case(*ops, gqa(2, 1, 128, 0, 64, true), act, act, 64, false);
    store_case(*ops, gqa(1, 1, 256), act, act, 16, true);
    store_case(*ops, gqa(8, 1, 8, 0, 2), act, act, 64, false);
  }
}

// The product and what follows it, at once or one after the other: the same bits, where the product
// has the same company.
void project_case(Ops& ops, const Gqa& spec, int in, DType act, bool bias,
                  const std::vector<Piece>& pieces) {
  SCOPED_TRACE(fmt::format("heads {}/{} dim {} in {} act {} bias {} pieces {}", spec.heads,
                           spec.kv_heads, spec.head_dim, in, name(act), bias, pieces.size()));
  Workspace ws(static_cast<uint64_t>(in + spec.head_dim));
  Paged paged(ws, spec, act, 64, pieces);
  const int64_t cols = int64_t{spec.heads + 2 * spec.kv_heads} * spec.head_dim;
  const int64_t rows = paged.batch.num_tokens;
  const Tensor x = ws.random(act, {rows, in});
  Linear plain{.weight = ws.random(act, {cols, in}), .bias = {}};
  if (bias) plain.bias = ws.random(DType::kF32, {cols}, 4);
  const Norm norm{.weight = ws.random(DType::kF32, {spec.head_dim}), .eps = 1e-5f};
  Buffer owner;
  const Linear w = ops.prepare(plain, {act}, &owner);
  std::vector<RowBytes> got;
  for (bool at_once : {false, true}) {
    const Tensor qkv = ws.output(act, {rows, cols});
    std::vector<Tensor> writable = paged.written_rows();
    for (Tensor& t : writable)
      for (int64_t c = 0; c < t.cols(); ++c) put(t, 0, c, NAN);
    writable.push_back(qkv);
    ws.begin_op(writable);
    ops.begin_step(paged.batch, {});
    if (at_once) {
      ops.gqa_project(qkv, x, w, norm, {}, spec, paged.batch, paged.kv);
    } else {
      ops.linear(qkv, x, w);
      ops.gqa_store(qkv, norm, {}, spec, paged.batch, paged.kv);
    }
    ws.end_op();
    RowBytes& bytes = got.emplace_back();
    for (const Tensor& t : writable)
      for (int64_t r = 0; r < t.rows(); ++r) bytes.push_back(row_bytes(t, r));
  }
  EXPECT_EQ(got[0], got[1]);
}

TEST_P(OpSuite, ProjectIsProductAndStore) {
  for (DType act : {DType::kF32, DType::kBF16}) {
    for (bool bias : {false, true}) {
      project_case(*ops, gqa(4, 2, 64), 72, act, bias, kMixed);
      project_case(*ops, gqa(3, 1, 10), 40, act, bias, kMixed);
      project_case(*ops, gqa(2, 1, 128, 0, 64, true), 100, act, bias, {{5, 17}, {0, 30}, {63, 1}});
      project_case(*ops, gqa(4, 2, 64), 64, act, bias, {{3, 1}});
      project_case(*ops, gqa(2, 2, 32), 64, act, bias, {{0, 600}});
    }
  }
}

// Layers of one step may rotate differently, so a table made for one layer must not serve another.
TEST_P(OpSuite, StoreOfDifferentLayersInOneStep) {
  Gqa plain = gqa(2, 1, 16), interleaved = gqa(2, 1, 16, 0, 16, true), slow = gqa(2, 1, 16);
  slow.rope.theta = 1e6f;
  Gqa partial = gqa(2, 1, 16, 0, 8), scaled = gqa(2, 1, 16);
  scaled.rope.scaling = LinearScaling{.factor = 2};
  Workspace ws(3);
  Paged paged(ws, plain, DType::kF32, 16, {{70, 2}, {3, 1}});
  const Tensor before = ws.random(DType::kF32, {3, 64}), qkv = ws.output(DType::kF32, {3, 64});
  ops->begin_step(paged.batch, {});
  for (const Gqa& spec : {plain, interleaved, slow, plain, partial, scaled, plain}) {
    convert(qkv, before);
    ops->gqa_store(qkv, {}, {}, spec, paged.batch, paged.kv);
    for (int64_t r = 0; r < 3; ++r) {
      const int position = paged.batch.positions.as<int32_t>()[r];
      for (int h = 0; h < 3; ++h) {
        const std::vector<double> want = expected_head(before, r, h, spec, {}, position);
        expect_near(qkv.row_range(r, 1).col_range(int64_t{h} * 16, 16), [&](int64_t, int64_t i) {
          return Approx{want[static_cast<size_t>(i)], head_bound(want, spec, static_cast<int>(i))};
        });
      }
    }
  }
}

TEST_P(OpSuite, StoreFollowsScaledRope) {
  Gqa spec = gqa(2, 1, 16);
  spec.rope.theta = 5e5f;
  spec.rope.scaling = Llama3Scaling{.factor = 8, .original_ctx = 128};
  store_case(*ops, spec, DType::kF32, DType::kF32, 64, false);
  spec.rope.scaling = LinearScaling{.factor = 4};
  store_case(*ops, spec, DType::kF32, DType::kF32, 64, false);
}

}  // namespace

// How far float arithmetic may stray: each score is a sum of D products, off by e <= (D + 2)
// roundings of its absolute sum, and perhaps a few of its own size when it goes through exp; a
// probability is then off by 2e relatively, and sums of n of them by n roundings more, whatever the
// order and however often they are rescaled. Where q is bf16 and the cache is that or quantized,
// each probability may be rounded to bf16 once. `exact`: as in Paged::keys().
std::vector<Approx> attended(const Tensor& q, const Gqa& spec, const Paged& paged, int seq,
                             int position, int head, bool exact) {
  const int d = spec.head_dim, kv_head = head / (spec.heads / spec.kv_heads);
  const int first = spec.window ? std::max(0, position - spec.window + 1) : 0;
  std::vector<double> score, total(static_cast<size_t>(d)), size(static_cast<size_t>(d));
  double score_bound = 0, best = -INFINITY, sum = 0;
  const auto column = [&](int i) { return static_cast<size_t>(int64_t{kv_head} * d + i); };
  for (int t = first; t <= position; ++t) {
    const std::vector<double> k = paged.keys(seq, t, exact);
    double s = 0, absolute = 0;
    for (int i = 0; i < d; ++i) {
      const double product = at(q, 0, head * d + i) * k[column(i)];
      s += product;
      absolute += std::abs(product);
    }
    score.push_back(s / std::sqrt(d));
    best = std::max(best, score.back());
    score_bound = std::max(score_bound, (d + 6) * kF32Round * absolute / std::sqrt(d));
  }
  for (int t = first; t <= position; ++t) {
    const std::vector<double> v = paged.values(seq, t, exact);
    const double weight = std::exp(score[static_cast<size_t>(t - first)] - best);
    sum += weight;
    for (int i = 0; i < d; ++i) {
      const double product = weight * v[column(i)];
      total[static_cast<size_t>(i)] += product;
      size[static_cast<size_t>(i)] += std::abs(product);
    }
  }
  const bool narrow = q.dtype == DType::kBF16 && paged.kv.v.dtype != DType::kF32;
  const double bound =
      2 * score_bound + (2.0 * (position + 1 - first) + 32) * kF32Round + (narrow ? kBf16Round : 0);
  std::vector<Approx> out;
  for (size_t i = 0; i < total.size(); ++i) out.push_back({total[i] / sum, bound * size[i] / sum});
  return out;
}

// Values of a cache of bytes are either rounded, all of them, or exact.
void expect_attention_at(const Tensor& out, const Tensor& q, const Gqa& spec, const Paged& paged,
                         int seq, int position, int head) {
  const Tensor got = out.col_range(int64_t{head} * spec.head_dim, spec.head_dim);
  std::vector<Approx> want;
  const auto wanted = [&](int64_t, int64_t i) { return want[static_cast<size_t>(i)]; };
  want = attended(q, spec, paged, seq, position, head, false);
  const bool bytes = paged.kv.format.quantized() && paged.kv.format.dtype != DType::kU4;
  if (bytes && !is_near(got, wanted)) want = attended(q, spec, paged, seq, position, head, true);
  expect_near(got, wanted);
}

void attend_case(Ops& ops, const AttendCase& c) {
  const Gqa& spec = c.spec;
  SCOPED_TRACE(fmt::format("heads {}/{} dim {} window {} act {} cache {} page {} pool {}",
                           spec.heads, spec.kv_heads, spec.head_dim, spec.window, name(c.act),
                           describe(c.cache), c.page_size, static_cast<int>(c.pool)));
  Workspace ws(static_cast<uint64_t>(spec.head_dim * 100 + spec.heads + spec.window));
  Paged paged(ws, spec, c.cache, c.page_size, c.pieces, c.pool);
  const int64_t rows = paged.batch.num_tokens, cols = int64_t{spec.heads} * spec.head_dim;
  // The queries lie where gqa_store leaves them: at the front of longer rows.
  const Tensor qkv =
      ws.random(c.act, {rows, cols + int64_t{2} * spec.kv_heads * spec.head_dim}, 1.5);
  const Tensor q = qkv.col_range(0, cols), out = ws.output(c.act, {rows, cols});
  ws.begin_op({out});
  ops.begin_step(paged.batch, {});
  ops.gqa_attend(out, q, spec, paged.batch, paged.kv);
  ws.end_op();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < cols; ++i) ASSERT_FALSE(std::isnan(at(out, r, i))) << r << ", " << i;
  // The last rows of all pieces are among those that are compared when these are few.
  std::vector<int32_t> chosen = ws.rng.shuffled(static_cast<int>(rows));
  std::ranges::stable_partition(
      chosen, [&](int32_t r) { return r + 1 == rows || paged.seq_of(r) != paged.seq_of(r + 1); });
  chosen.resize(std::min(chosen.size(), static_cast<size_t>(c.checked_rows)));
  for (int32_t r : chosen) {
    for (int h = 0; h < spec.heads; ++h)
      expect_attention_at(out.row_range(r, 1), q.row_range(r, 1), spec, paged, paged.seq_of(r),
                          paged.batch.positions.as<int32_t>()[r], h);
  }
}

namespace {

void expect_attention(const Tensor& out, const Tensor& q, const Gqa& spec, const Paged& paged,
                      int64_t row, int head) {
  expect_attention_at(out.row_range(row, 1), q.row_range(row, 1), spec, paged, paged.seq_of(row),
                      paged.batch.positions.as<int32_t>()[row], head);
}

void attend_case(Ops& ops, const Gqa& spec, DType act, DType cache, int page_size,
                 const std::vector<Piece>& pieces) {
  for (const Pool pool : kPools)
    suite::attend_case(ops, {.spec = spec,
                             .act = act,
                             .cache = {.dtype = cache},
                             .page_size = page_size,
                             .pieces = pieces,
                             .pool = pool});
}

TEST_P(OpSuite, AttendOfEveryHeadSize) {
  const std::vector<Piece> pieces = {{0, 1}, {63, 1}, {64, 1}, {9, 0}, {62, 5}, {0, 20}, {100, 1}};
  for (int head_dim : {8, 10, 64, 80, 128, 256}) {
    attend_case(*ops, gqa(2, 1, head_dim), DType::kF32, DType::kF32, 64, pieces);
    attend_case(*ops, gqa(2, 2, head_dim), DType::kBF16, DType::kBF16, 64, pieces);
  }
}

TEST_P(OpSuite, AttendOfEveryGroup) {
  for (int group = 1; group <= 8; ++group) {
    attend_case(*ops, gqa(2 * group, 2, 16), DType::kF32, DType::kF32, 64, kMixed);
    attend_case(*ops, gqa(group, 1, 32), DType::kBF16, DType::kBF16, 16, kMixed);
  }
}

TEST_P(OpSuite, AttendMixesDtypes) {
  attend_case(*ops, gqa(4, 2, 32), DType::kF32, DType::kBF16, 64, kMixed);
  attend_case(*ops, gqa(4, 2, 32), DType::kBF16, DType::kF32, 64, kMixed);
}

TEST_P(OpSuite, AttendSeesOnlyItsWindow) {
  for (int window : {1, 2, 5, 63, 64, 65, 100, 1000}) {
    attend_case(*ops, gqa(2, 1, 16, window), DType::kF32, DType::kF32, 64, kMixed);
    attend_case(*ops, gqa(2, 1, 16, window), DType::kBF16, DType::kBF16, 16, kMixed);
  }
}

// A block need not be a whole number of positions long, nor its strides those of TMA.
TEST_P(OpSuite, PagesMayLieAnyDistanceApart) {
  for (const DType t : {DType::kF32, DType::kBF16}) {
    for (const int dim : {10, 64, 128}) {
      const Gqa spec = gqa(4, 2, dim);
      store_case(*ops, spec, {t, t, 16, true, Pool::kPadded});
      suite::attend_case(*ops, {.spec = spec,
                                .act = t,
                                .cache = {.dtype = t},
                                .page_size = 16,
                                .pieces = kMixed,
                                .pool = Pool::kPadded});
    }
  }
}

TEST_P(OpSuite, AttendOfNothing) {
  attend_case(*ops, gqa(2, 1, 16), DType::kF32, DType::kF32, 64, {});
  attend_case(*ops, gqa(2, 1, 16), DType::kF32, DType::kF32, 64, {{0, 0}, {70, 0}});
}

TEST_P(OpSuite, AttendOfLongContext) {
  attend_case(*ops, gqa(2, 1, 64), DType::kF32, DType::kF32, 64, {{1500, 2}, {3, 1}});
  attend_case(*ops, gqa(2, 1, 64), DType::kBF16, DType::kBF16, 64, {{1000, 30}});
}

// Scores of hundreds: exp must not overflow, and one key takes all.
TEST_P(OpSuite, AttendOfHugeScores) {
  const Gqa spec = gqa(1, 1, 8);
  Workspace ws(4);
  Paged paged(ws, spec, DType::kF32, 16, {{40, 3}});
  const Tensor q = ws.random(DType::kF32, {3, 8}, 1000), out = ws.output(DType::kF32, {3, 8});
  ops->begin_step(paged.batch, {});
  ops->gqa_attend(out, q, spec, paged.batch, paged.kv);
  for (int64_t r = 0; r < 3; ++r) expect_attention(out, q, spec, paged, r, 0);
}

RowBytes run_prompts(Ops& ops, const Gqa& spec, DType act, const KvFormat& cache,
                     const std::vector<int>& lengths, const Cut& cut) {
  Workspace data(11);  // the same rows for every cut
  const int64_t cols = int64_t{spec.heads + 2 * spec.kv_heads} * spec.head_dim;
  const int64_t out_cols = int64_t{spec.heads} * spec.head_dim;
  const Tensor weight = data.random(DType::kF32, {2, spec.head_dim});
  const Norm q{.weight = weight.row_range(0, 1).reshaped({spec.head_dim}), .eps = 1e-5f};
  const Norm k{.weight = weight.row_range(1, 1).reshaped({spec.head_dim}), .eps = 1e-5f};
  std::vector<Tensor> prompts;
  prompts.reserve(lengths.size());
  for (int n : lengths) prompts.push_back(data.random(act, {n, cols}));
  std::vector<Piece> whole;
  whole.reserve(lengths.size());
  for (int n : lengths) whole.push_back({0, n});
  Workspace pages(cut.page_seed);
  Paged paged(pages, spec, cache, cut.page_size, whole);  // gives every sequence its pages
  std::vector<RowBytes> result(lengths.size());
  std::vector<int> done(lengths.size());
  for (size_t step = 0; std::ranges::any_of(std::views::iota(size_t{0}, lengths.size()),
                                            [&](size_t s) { return done[s] < lengths[s]; });
       ++step) {
    Workspace ws(1);
    const int chunk = cut.chunks[std::min(step, cut.chunks.size() - 1)];
    std::vector<size_t> order;
    std::vector<Piece> pieces;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const size_t s = cut.reversed ? lengths.size() - 1 - i : i;
      order.push_back(s);
      pieces.push_back({done[s], std::min(chunk, lengths[s] - done[s])});
    }
    const Stepped now = paged.step(ws, order, pieces);
    const Tensor qkv = ws.output(act, {now.batch.num_tokens, cols});
    const Tensor out = ws.output(act, {now.batch.num_tokens, out_cols});
    int64_t row = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      convert(qkv.row_range(row, pieces[i].rows),
              prompts[order[i]].row_range(pieces[i].begin, pieces[i].rows));
      row += pieces[i].rows;
    }
    ops.begin_step(now.batch, {});
    ops.gqa_store(qkv, q, k, spec, now.batch, paged.kv);
    ops.gqa_attend(out, qkv.col_range(0, out_cols), spec, now.batch, paged.kv);
    row = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      for (int r = 0; r < pieces[i].rows; ++r, ++row) {
        std::vector<std::byte> bytes = row_bytes(qkv, row), more = row_bytes(out, row);
        bytes.insert(bytes.end(), more.begin(), more.end());
        result[order[i]].push_back(std::move(bytes));
      }
      done[order[i]] += pieces[i].rows;
    }
  }
  RowBytes all;
  for (RowBytes& rows : result) std::ranges::move(rows, std::back_inserter(all));
  return all;
}

}  // namespace

void expect_cuts_alike(Ops& ops, const Gqa& spec, DType act, const KvFormat& cache,
                       const std::vector<int>& lengths, const std::vector<Cut>& cuts) {
  const RowBytes whole = run_prompts(ops, spec, act, cache, lengths, {.chunks = {1 << 20}});
  for (const Cut& cut : cuts) {
    const RowBytes pieces = run_prompts(ops, spec, act, cache, lengths, cut);
    ASSERT_EQ(pieces.size(), whole.size());
    for (size_t r = 0; r < whole.size(); ++r) {
      ASSERT_TRUE(pieces[r] == whole[r])
          << "row " << r << " of " << spec.heads << " heads, head_dim " << spec.head_dim << ", "
          << name(act) << ", cache " << describe(cache) << ", first chunk " << cut.chunks[0]
          << ", reversed " << cut.reversed;
    }
  }
}

namespace {

TEST_P(OpSuite, AttentionDoesNotDependOnCutsOrderOrPages) {
  if (!ops->batch_invariant()) GTEST_SKIP() << "this backend promises less";
  const std::vector<Cut> cuts = {{.chunks = {1}},
                                 {.chunks = {7, 1, 31, 2, 64}},
                                 {.chunks = {1000}, .reversed = true, .page_seed = 9},
                                 {.chunks = {16}, .page_seed = 77},
                                 {.chunks = {100, 1}, .reversed = true}};
  for (const Gqa& spec : {gqa(4, 2, 32), gqa(6, 2, 80, 33, 32), gqa(8, 1, 64, 0, 64, true)})
    for (DType act : {DType::kF32, DType::kBF16})
      expect_cuts_alike(*ops, spec, act, {.dtype = act}, {70, 1, 133, 16, 40}, cuts);
}

// The host's tiles have 64 positions and 16 queries, of several heads where each has few.
TEST_P(OpSuite, AttentionInTilesDoesNotDependOnCuts) {
  if (!ops->batch_invariant()) GTEST_SKIP() << "this backend promises less";
  if (ops->device() != Device{}) GTEST_SKIP() << "the next test is harder";
  const std::vector<Cut> cuts = {{.chunks = {1}},
                                 {.chunks = {130, 1, 2, 63, 3, 90}, .reversed = true},
                                 {.chunks = {5, 200}, .page_seed = 9}};
  for (const Gqa& spec : {gqa(4, 4, 64), gqa(6, 2, 96), gqa(7, 1, 128, 100), gqa(12, 1, 256),
                          gqa(18, 18, 40), gqa(10, 2, 66, 64)})
    expect_cuts_alike(*ops, spec, DType::kBF16, {.dtype = DType::kBF16}, {300, 1, 67}, cuts);
  expect_cuts_alike(*ops, gqa(4, 2, 64), DType::kBF16, {.dtype = DType::kBF16}, {1100},
                    {{.chunks = {700, 1, 1, 98}}, {.chunks = {511, 2}}});
}

// Contexts that a device's kernels divide, and so many rows that they divide them otherwise.
TEST_P(OpSuite, AttentionToLongContextsDoesNotDependOnCuts) {
  if (!ops->batch_invariant()) GTEST_SKIP() << "this backend promises less";
  if (ops->device() == Device{}) GTEST_SKIP() << "on the host all lengths are computed alike";
  const std::vector<Cut> cuts = {{.chunks = {1}},
                                 {.chunks = {256, 1, 300, 2, 64}},
                                 {.chunks = {5}, .reversed = true, .page_seed = 9},
                                 {.chunks = {400, 1, 2, 1, 30}, .reversed = true, .page_seed = 3}};
  for (const Gqa& spec :
       {gqa(8, 2, 128), gqa(4, 4, 64, 300), gqa(5, 1, 128, 70), gqa(4, 1, 256), gqa(14, 2, 64)})
    expect_cuts_alike(*ops, spec, DType::kBF16, {.dtype = DType::kBF16}, {700, 1, 300, 513}, cuts);
  expect_cuts_alike(*ops, gqa(16, 1, 128), DType::kBF16, {.dtype = DType::kBF16}, {4000},
                    {{.chunks = {700}}, {.chunks = {3900, 1, 1, 98}}});
}

}  // namespace
}  // namespace skiff::suite

// sample, logprobs.
#include <skiff_test_paths.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "base/json.h"
#include "ops/suite/sampling.h"
#include "tensor/device_memory.h"

namespace skiff::suite {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

int32_t expected_id(const Tensor& logits, int64_t row, const Params& params, double uniform) {
  if (params.temperature == 0 || params.top_p == 0) {
    return distribution(logits, row, {.top_k = 1})[0].id;
  }
  const std::vector<Likely> entries = distribution(logits, row, params);
  double sum = 0;
  for (const Likely& e : entries) {
    sum += e.p;
    if (uniform < sum) return e.id;
  }
  return entries.back().id;
}

std::vector<int32_t> draw(Ops& ops, Workspace& ws, const Tensor& logits, const SampleBatch& batch) {
  const Tensor out = ws.output(DType::kI32, {logits.rows()});
  ws.begin_op({out});
  ops.sample(out, logits, batch);
  ws.end_op();
  return {out.as<int32_t>(), out.as<int32_t>() + logits.rows()};
}

TEST_P(OpSuite, SampleMatchesItsDefinition) {
  std::vector<Params> kinds;
  for (float temperature : {0.0f, 0.3f, 1.0f, 2.5f}) {
    for (float top_p : {0.0f, 0.1f, 0.73f, 1.0f}) {
      for (float min_p : {0.0f, 0.02f, 0.4f}) {
        for (int top_k : {-1, 0, 1, 2, 40, 100000}) {
          kinds.push_back({temperature, top_p, min_p, top_k});
        }
      }
    }
  }
  for (int vocab : {1, 2, 31, 513, 3000}) {
    Workspace ws(static_cast<uint64_t>(vocab));
    const auto rows = static_cast<int64_t>(kinds.size());
    const Tensor logits = ws.random(DType::kF32, {rows, vocab}, 3);
    std::vector<int64_t> seeds, draws;
    for (int64_t r = 0; r < rows; ++r) {
      seeds.push_back(r % 3 ? r * 977 : -r);
      draws.push_back(r % 5);
    }
    const std::vector<int32_t> got = draw(*ops, ws, logits, make_batch(ws, kinds, seeds, draws));
    for (size_t r = 0; r < kinds.size(); ++r) {
      const double u =
          uniform_draw(static_cast<uint64_t>(seeds[r]), static_cast<uint64_t>(draws[r]));
      const Params& p = kinds[r];
      ASSERT_EQ(got[r], expected_id(logits, static_cast<int64_t>(r), p, u))
          << "vocab " << vocab << " temperature " << p.temperature << " top_p " << p.top_p
          << " min_p " << p.min_p << " top_k " << p.top_k;
    }
  }
}

TEST_P(OpSuite, GreedyTakesTheFirstMaximum) {
  for (int vocab : {1, 5, 16, 33, 513, 5000}) {
    for (const Params& params :
         {Params{.temperature = 0}, Params{.top_p = 0}, Params{.top_k = 1}}) {
      Workspace ws(static_cast<uint64_t>(vocab));
      const Tensor logits = ws.random(DType::kF32, {8, vocab});
      std::vector<int32_t> want;
      for (int64_t r = 0; r < 8; ++r) {
        int32_t first = vocab;
        for (int copies = 0; copies < 3; ++copies) {
          const int32_t id = ws.rng.below(vocab);
          put(logits, r, id, 50);
          first = std::min(first, id);
        }
        want.push_back(first);
      }
      const std::vector<int64_t> zeros(8, 0);
      EXPECT_EQ(
          draw(*ops, ws, logits, make_batch(ws, std::vector<Params>(8, params), zeros, zeros)),
          want);
    }
  }
}

// Vocabularies that blocks share out, with values that crowd one place of the line: `values` in
// turns along a shuffle of the tokens (none: random logits).
void wide_case(Ops& ops, int vocab, int rows, const std::vector<double>& values) {
  SCOPED_TRACE(fmt::format("vocab {} rows {} values {}", vocab, rows, values.size()));
  const std::vector<Params> kinds = {{.top_p = 0.95f},
                                     {},
                                     {.temperature = 0.7f, .top_p = 0.3f, .top_k = 700},
                                     {.min_p = 0.01f, .top_k = vocab - 5},
                                     {.temperature = 1.7f, .top_p = 0.998f, .min_p = 0.001f},
                                     {.top_p = 0.8f, .min_p = 0.02f},
                                     {.top_p = 0.9f, .top_k = 50},
                                     {.top_p = 0.6f, .min_p = 0.05f, .top_k = 300},
                                     {.top_p = 0.97f, .top_k = 3000},
                                     {.temperature = 0}};
  Workspace ws(static_cast<uint64_t>(vocab + rows) + values.size());
  const Tensor logits = ws.random(DType::kF32, {rows, vocab}, 2.5);
  std::vector<Params> params;
  std::vector<int64_t> seeds, draws;
  for (int64_t r = 0; r < rows; ++r) {
    const auto stride =
        static_cast<uint64_t>(2 * r + 7919);  // ids that have values[0] are not a run
    for (int64_t i = 0; i < vocab && !values.empty(); ++i)
      put(logits, r, i, values[static_cast<uint64_t>(i) * stride / 64 % values.size()]);
    params.push_back(kinds[static_cast<size_t>(r) % kinds.size()]);
    seeds.push_back(r * 31 + 5);
    draws.push_back(r % 9);
  }
  const std::vector<int32_t> got = draw(ops, ws, logits, make_batch(ws, params, seeds, draws));
  for (size_t r = 0; r < params.size(); ++r) {
    const double u = uniform_draw(static_cast<uint64_t>(seeds[r]), static_cast<uint64_t>(draws[r]));
    EXPECT_EQ(got[r], expected_id(logits, static_cast<int64_t>(r), params[r], u))
        << "row " << r << " top_p " << params[r].top_p << " top_k " << params[r].top_k;
  }
}

TEST_P(OpSuite, SampleOfWideRows) {
  for (int rows : {1, 6, 13, 40}) wide_case(*ops, 20011, rows, {});
  wide_case(*ops, 40009, 20, {});
}

TEST_P(OpSuite, SampleOfManyRows) { wide_case(*ops, 151, 700, {}); }

TEST_P(OpSuite, SampleOfWideRowsWithTies) {
  for (int rows : {6, 24}) {
    wide_case(*ops, 20011, rows, {1.25});                      // all alike
    wide_case(*ops, 20011, rows, {-3, 2});                     // two values
    wide_case(*ops, 20011, rows, {1, 1.0078125, 1.01171875});  // more than a list, in one bin
  }
}

TEST_P(OpSuite, SampleOfWideRowsWithFewPossible) {
  for (int rows : {6, 24})
    wide_case(*ops, 20011, rows, {-kInf, -kInf, -kInf, 3, -kInf, 0.5, -kInf, 2});
}

// Rows in which every token is as likely as any other are followed, wherever the same blocks take
// one row after the other, by rows whose best token is to be found: what the first kind leaves in a
// block's lists must not reach the second. Which row follows which depends on the device, so kinds
// are mixed at random.
TEST_P(OpSuite, RowsOfTiesLeaveTheNextRowAlone) {
  const int rows = ops->device() == Device{} ? 6 : 128, vocab = 152064;
  Workspace ws(12);
  const Tensor logits = ws.output(DType::kF32, {rows, vocab});
  std::vector<Params> params;
  std::vector<int64_t> seeds;
  std::vector<int32_t> want;
  for (int64_t r = 0; r < rows; ++r) {
    const bool ties = ws.rng.below(2) == 1;
    float* x = logits.row<float>(r);
    for (int i = 0; i < vocab; ++i) x[i] = ties ? 1.25f : static_cast<float>(ws.rng.normal());
    params.push_back({.temperature = ties ? 1.0f : 0.0f});
    seeds.push_back(r);
    const double u = uniform_draw(static_cast<uint64_t>(r), 0);
    want.push_back(static_cast<int32_t>(ties ? u * vocab : std::max_element(x, x + vocab) - x));
  }
  const SampleBatch batch = make_batch(ws, params, seeds, std::vector<int64_t>(seeds.size(), 0));
  for (int round = 0; round < (ops->device() == Device{} ? 1 : 4); ++round) {
    const std::vector<int32_t> got = draw(*ops, ws, logits, batch);
    for (size_t r = 0; r < got.size(); ++r)
      EXPECT_EQ(got[r], want[r]) << "row " << r << ", temperature " << params[r].temperature;
  }
}

// Rows of equal logits: the cut falls among ties, and the lower ids stay.
TEST_P(OpSuite, CutsAmongTiesKeepLowerIds) {
  constexpr int kRows = 400, kVocab = 40;
  const auto ids_drawn = [&](const Params& params) {
    Workspace ws(6);
    const Tensor logits = ws.random(DType::kF32, {kRows, kVocab});
    std::vector<int64_t> seeds;
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < kVocab; ++i) put(logits, r, i, i % 2 ? 1.5 : -9);
      seeds.push_back(r);
    }
    const SampleBatch batch =
        make_batch(ws, std::vector<Params>(kRows, params), seeds, std::vector<int64_t>(kRows, 1));
    std::vector<int32_t> got = draw(*ops, ws, logits, batch);
    std::sort(got.begin(), got.end());
    got.erase(std::unique(got.begin(), got.end()), got.end());
    return got;
  };
  EXPECT_EQ(ids_drawn({.top_k = 3}), (std::vector<int32_t>{1, 3, 5}));
  // Twenty tokens of almost 1/20 each: just over 3/20 are needed for three and a bit.
  EXPECT_EQ(ids_drawn({.top_p = 0.17f}), (std::vector<int32_t>{1, 3, 5, 7}));
  std::vector<int32_t> odd;
  for (int i = 1; i < kVocab; i += 2) odd.push_back(i);
  EXPECT_EQ(ids_drawn({.min_p = 1}), odd);
  EXPECT_EQ(ids_drawn({.min_p = 1, .top_k = 20}), odd);
}

// Rows of one distribution: how often each token is drawn. `rows` decides how a device does it.
std::map<int32_t, int> counts_drawn(Ops& ops, const std::vector<double>& p, const Params& params,
                                    int rows) {
  Workspace ws(3);
  const auto vocab = std::ssize(p);
  const Tensor logits = ws.random(DType::kF32, {rows, vocab});
  std::vector<int64_t> seeds;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < vocab; ++i) put(logits, r, i, std::log(p[static_cast<size_t>(i)]));
    seeds.push_back(r + 1000);
  }
  std::map<int32_t, int> counts;
  for (const int32_t id :
       draw(ops, ws, logits,
            make_batch(ws, std::vector<Params>(static_cast<size_t>(rows), params), seeds,
                       std::vector<int64_t>(static_cast<size_t>(rows), 0))))
    ++counts[id];
  return counts;
}

// top_p is a fraction of the mass that top_k and min_p leave. In each case other tokens would be
// kept if it were a fraction of the whole: of 0.4 and 0.3, which are 0.571 and 0.429 of 0.7, top_p
// 0.55 keeps only the first, but out of all four tokens it would keep both.
TEST_P(OpSuite, TopKAndMinPComeBeforeTopP) {
  const std::vector<double> p = {0.1, 0.4, 0.2, 0.3};
  for (const int rows : {16, 300}) {
    SCOPED_TRACE(rows);
    EXPECT_EQ(counts_drawn(*ops, p, {.top_p = 0.55f, .top_k = 2}, rows),
              (std::map<int32_t, int>{{1, rows}}));
    EXPECT_EQ(counts_drawn(*ops, p, {.top_p = 0.55f, .min_p = 0.7f}, rows),
              (std::map<int32_t, int>{{1, rows}}));
    // min_p leaves three tokens, of which top_k leaves two
    EXPECT_EQ(counts_drawn(*ops, p, {.top_p = 0.55f, .min_p = 0.4f, .top_k = 2}, rows),
              (std::map<int32_t, int>{{1, rows}}));
  }
  // 0.58 needs both. 3/7 of 300 with a deviation of 8.6.
  const std::map<int32_t, int> both = counts_drawn(*ops, p, {.top_p = 0.58f, .top_k = 2}, 300);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_NEAR(both.at(3), 300.0 * 3 / 7, 43);
  // 0.4, 0.3 and 0.2 are 0.9: 0.77 of that is just under what the first two are
  EXPECT_EQ(counts_drawn(*ops, p, {.top_p = 0.77f, .min_p = 0.4f}, 300).size(), 2u);
}

// What transformers' warpers keep (tools/golden/make_warpers.py), which are given in this order.
// They compute in f32: no draw near the border of two tokens is judged.
TEST_P(OpSuite, SampleKeepsWhatTheWarpersOfTransformersKeep) {
  constexpr int kDraws = 8;
  constexpr double kNear = 1e-5;
  const Json table = read_json_file(SKIFF_SOURCE_DIR "/tests/sampling/warpers.json");
  const auto values = table["rows"].get<std::vector<std::vector<float>>>();
  for (size_t row = 0; row < values.size(); ++row) {
    Workspace ws(row);
    std::vector<Params> params;
    std::vector<std::vector<int32_t>> kept;
    for (const Json& c : table["cases"]) {
      if (c["row"] != row) continue;
      for (int i = 0; i < kDraws; ++i) {
        params.push_back({c["temperature"], c["top_p"], c["min_p"], c["top_k"]});
        kept.push_back(c["kept"]);
      }
    }
    ASSERT_EQ(params.size(), 180u * kDraws);
    const Tensor logits =
        ws.output(DType::kF32, {std::ssize(params), static_cast<int64_t>(values[row].size())});
    std::vector<int64_t> seeds;
    for (int64_t r = 0; r < std::ssize(params); ++r) {
      std::ranges::copy(values[row], logits.row<float>(r));
      seeds.push_back(r + 77);
    }
    const std::vector<int32_t> got = draw(
        *ops, ws, logits, make_batch(ws, params, seeds, std::vector<int64_t>(seeds.size(), 3)));
    int judged = 0;
    for (size_t r = 0; r < got.size(); ++r) {
      std::vector<Likely> entries;
      for (const int32_t id : kept[r])
        entries.push_back({std::exp(static_cast<double>(values[row][static_cast<size_t>(id)]) /
                                    static_cast<double>(params[r].temperature)),
                           id});
      renormalise(entries);
      const double u = uniform_draw(static_cast<uint64_t>(seeds[r]), 3);
      double sum = 0;
      size_t at = 0;
      while (at + 1 < entries.size() && sum + entries[at].p <= u) sum += entries[at++].p;
      if (std::min(u - sum, sum + entries[at].p - u) < kNear) continue;
      ++judged;
      EXPECT_EQ(got[r], entries[at].id)
          << "row " << row << " temperature " << params[r].temperature << " min_p "
          << params[r].min_p << " top_k " << params[r].top_k << " top_p " << params[r].top_p;
    }
    EXPECT_GT(judged, 170 * kDraws);
  }
}

// Pearson's test. With k degrees of freedom the statistic has mean k and deviation sqrt(2k); six
// deviations are far beyond what a right sampler shows, and the seeds are fixed anyway.
void chi_square_case(Ops& ops, const Params& params, bool along_draws) {
  constexpr int kRows = 20000, kVocab = 24;
  Workspace ws(21);
  const Tensor one = ws.random(DType::kF32, {1, kVocab}, 1.5);
  const Tensor logits = ws.output(DType::kF32, {kRows, kVocab});
  std::vector<int64_t> seeds, draws;
  for (int64_t r = 0; r < kRows; ++r) {
    convert(logits.row_range(r, 1), one);
    seeds.push_back(along_draws ? 42 : r);
    draws.push_back(along_draws ? r : 5);
  }
  const std::vector<int32_t> got =
      draw(ops, ws, logits, make_batch(ws, std::vector<Params>(kRows, params), seeds, draws));
  std::map<int32_t, int> count;
  for (const int32_t id : got) ++count[id];
  double statistic = 0;
  const std::vector<Likely> entries = distribution(logits, 0, params);
  for (const Likely& e : entries) {
    const double expected = e.p * kRows, difference = count[e.id] - expected;
    statistic += difference * difference / expected;
    count.erase(e.id);
  }
  EXPECT_TRUE(count.empty()) << "a token outside the kept set was drawn";
  const auto freedom = static_cast<double>(entries.size()) - 1;
  ASSERT_GT(freedom, 2);
  EXPECT_LT(statistic, freedom + 6 * std::sqrt(2 * freedom));
}

TEST_P(OpSuite, SampleFollowsTheDistribution) {
  for (bool along_draws : {false, true}) {
    chi_square_case(*ops, {}, along_draws);
    chi_square_case(*ops, {.temperature = 0.6f}, along_draws);
    chi_square_case(*ops, {.temperature = 1.7f, .top_p = 0.8f}, along_draws);
    chi_square_case(*ops, {.min_p = 0.1f, .top_k = 9}, along_draws);
  }
}

// Five kinds of rows, each taken greedily and drawn from, `times` over: a device samples many rows
// in another way than few.
void broken_rows_case(Ops& ops, int times) {
  SCOPED_TRACE(times);
  constexpr int kVocab = 70, kKinds = 10;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const int rows = times * kKinds;
  Workspace ws(4);
  const Tensor logits = ws.random(DType::kF32, {rows, kVocab});
  std::vector<Params> params;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t pair = r % kKinds / 2;
    for (int64_t i = 0; i < kVocab; ++i) {
      if (pair == 0) put(logits, r, i, i == 37 ? 2.5 : -kInf);  // one choice
      if (pair == 1) put(logits, r, i, -kInf);                  // none
      if (pair == 2) put(logits, r, i, nan);
    }
    if (pair == 3) put(logits, r, 11, kInf);
    if (pair == 4) put(logits, r, 11, nan);
    params.push_back({.temperature = r % 2 ? 1.0f : 0.0f});
  }
  const std::vector<int64_t> zeros(params.size(), 0);
  const std::vector<int32_t> got = draw(ops, ws, logits, make_batch(ws, params, zeros, zeros));
  for (size_t r = 0; r < got.size(); ++r) {
    SCOPED_TRACE(r);
    EXPECT_GE(got[r], 0);
    EXPECT_LT(got[r], kVocab);
    const size_t pair = r % kKinds / 2;
    EXPECT_TRUE(pair != 0 || got[r] == 37) << got[r];
    EXPECT_TRUE(pair != 3 || got[r] == 11) << got[r];
    EXPECT_TRUE(pair != 4 || got[r] != 11) << got[r];
  }
}

TEST_P(OpSuite, SampleSurvivesBannedAndBrokenRows) {
  for (const int times : {1, 5, 30}) broken_rows_case(*ops, times);
}

TEST_P(OpSuite, SampledRowsAreIndependent) {
  constexpr int kRows = 37, kVocab = 513;
  Workspace ws(31);
  const Tensor logits = ws.random(DType::kF32, {kRows, kVocab}, 2);
  const Tensor out = ws.output(DType::kI32, {kRows});
  std::vector<Params> params;
  std::vector<int64_t> seeds, draws;
  for (int r = 0; r < kRows; ++r) {
    params.push_back({.temperature = 0.5f * static_cast<float>(r % 4),
                      .top_p = r % 3 ? 0.9f : 1,
                      .top_k = r % 5 * 10});
    seeds.push_back(int64_t{r} * r);
    draws.push_back(r % 7);
  }
  const SampleBatch all = make_batch(ws, params, seeds, draws);
  expect_rows_independent(kRows, [&](int begin, int count) {
    const auto part = [&](const Tensor& t) { return t.row_range(begin, count); };
    const SampleBatch batch{.temperature = part(all.temperature),
                            .top_p = part(all.top_p),
                            .min_p = part(all.min_p),
                            .top_k = part(all.top_k),
                            .seed = part(all.seed),
                            .draw = part(all.draw)};
    ops->sample(part(out), part(logits), batch);
    RowBytes rows;
    for (int r = 0; r < count; ++r) rows.push_back(row_bytes(part(out), r));
    return rows;
  });
}

void logprobs_case(Ops& ops, int rows, int vocab, int n) {
  SCOPED_TRACE(fmt::format("rows {} vocab {} n {}", rows, vocab, n));
  Workspace ws(static_cast<uint64_t>(rows * 7 + vocab));
  const Tensor logits = ws.random(DType::kF32, {rows, vocab}, 4);
  std::vector<int32_t> id;
  for (int64_t r = 0; r < rows; ++r) {
    for (int i = 0; i < 4; ++i) put(logits, r, ws.rng.below(vocab), 3.25);  // ties
    id.push_back(ws.rng.below(vocab));
  }
  const Tensor chosen = ws.ints(id);
  const Tensor logprob = ws.output(DType::kF32, {rows}), rank = ws.output(DType::kI32, {rows});
  const Tensor top_ids = n ? ws.output(DType::kI32, {rows, n}) : Tensor{};
  const Tensor top = n ? ws.output(DType::kF32, {rows, n}) : Tensor{};
  ws.begin_op({logprob, rank, top_ids, top});
  ops.logprobs(logprob, rank, top_ids, top, logits, chosen);
  ws.end_op();
  // x - best and the logarithm are a few roundings of numbers up to `size`; the sum of V
  // exponentials is off by V / 2 + 8 roundings relatively, which its logarithm makes absolute.
  const auto expect_logprob = [&](double got, int64_t r, int32_t token) {
    double best = -INFINITY, sum = 0;
    for (int64_t i = 0; i < vocab; ++i) best = std::max(best, at(logits, r, i));
    for (int64_t i = 0; i < vocab; ++i) sum += std::exp(at(logits, r, i) - best);
    const double want = at(logits, r, token) - best - std::log(sum);
    const double size = std::abs(best) + std::abs(want) + std::log(sum);
    ASSERT_NEAR(got, want, (4 * size + vocab / 2.0 + 8) * kF32Round);
  };
  for (int64_t r = 0; r < rows; ++r) {
    const int32_t mine = id[static_cast<size_t>(r)];
    std::vector<int32_t> ids(static_cast<size_t>(vocab));
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(),
                     [&](int32_t a, int32_t b) { return at(logits, r, a) > at(logits, r, b); });
    int better = 0;
    for (int64_t i = 0; i < vocab; ++i) better += at(logits, r, i) > at(logits, r, mine);
    EXPECT_EQ(at(rank, r), better + 1);
    expect_logprob(at(logprob, r), r, mine);
    for (int64_t i = 0; i < n; i += i < 20 ? 1 : 37) {
      ASSERT_EQ(at(top_ids, r, i), ids[static_cast<size_t>(i)]) << "place " << i;
      expect_logprob(at(top, r, i), r, ids[static_cast<size_t>(i)]);
    }
  }
}

TEST_P(OpSuite, Logprobs) {
  for (int vocab : {1, 2, 16, 33, 513}) {
    for (int rows : {0, 1, 5}) {
      for (int n : {0, 1, 5, vocab}) {
        if (n <= vocab) logprobs_case(*ops, rows, vocab, n);
      }
    }
  }
  logprobs_case(*ops, 2, 20011, 20);
}

// Devices whose blocks have little shared memory hold shorter rows, or none: 99 KB are what
// capability 12 has, and with 41 KB each kernel reads its rows where they are.
TEST(CudaSampling, DevicesWithLittleSharedMemory) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
  for (const size_t kilobytes : {92, 41}) {
    const std::unique_ptr<Ops> ops =
        make_cuda_ops({.synchronous = true, .shared_memory = kilobytes << 10});
    for (const int rows : {5, 40}) wide_case(*ops, 40009, rows, {});
    wide_case(*ops, 152064, 20, {});
    wide_case(*ops, 152064, 20, {-3, 2});
    logprobs_case(*ops, 2, 152064, 20);
  }
}

TEST_P(OpSuite, LogprobsOfBannedTokens) {
  Workspace ws(2);
  const Tensor logits = ws.floats({1, -kInf, 2, -kInf, 3}).reshaped({1, 5});
  const Tensor logprob = ws.output(DType::kF32, {1}), rank = ws.output(DType::kI32, {1});
  const Tensor ids = ws.output(DType::kI32, {1, 5}), top = ws.output(DType::kF32, {1, 5});
  ops->logprobs(logprob, rank, ids, top, logits, ws.ints({3}));
  EXPECT_EQ(at(logprob, 0), -kInf);
  EXPECT_EQ(at(rank, 0), 4);
  EXPECT_EQ((std::vector<int32_t>{ids.as<int32_t>(), ids.as<int32_t>() + 5}),
            (std::vector<int32_t>{4, 2, 0, 1, 3}));
  EXPECT_EQ(at(top, 0, 4), -kInf);
}

}  // namespace
}  // namespace skiff::suite

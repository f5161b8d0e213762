// draw_logprobs, check_drafts.
#include <algorithm>
#include <cmath>
#include <map>

#include "ops/suite/sampling.h"

namespace skiff::suite {
namespace {

// The definition of check_drafts on probabilities.
int32_t checked(const std::vector<double>& p, const std::vector<double>& q, int32_t token,
                double keep, double instead, int32_t before) {
  if (keep * q[static_cast<size_t>(token)] < p[static_cast<size_t>(token)]) return token;
  double total = 0;
  for (size_t i = 0; i < p.size(); ++i) total += std::max(p[i] - q[i], 0.0);
  if (!(total > 0)) return before;
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    sum += std::max(p[i] - q[i], 0.0);
    if (sum > instead * total) return static_cast<int32_t>(i);
  }
  return before;
}

Tensor logs(Workspace& ws, const std::vector<std::vector<double>>& rows) {
  const Tensor out = ws.output(DType::kF32, {std::ssize(rows), std::ssize(rows.front())});
  for (size_t r = 0; r < rows.size(); ++r)
    for (size_t i = 0; i < rows[r].size(); ++i)
      put(out, static_cast<int64_t>(r), static_cast<int64_t>(i), std::log(rows[r][i]));
  return out;
}

struct Check {
  int32_t row, draft_row, token;
  float keep, instead;
};

std::vector<int32_t> check(Ops& ops, Workspace& ws, const Tensor& target, const Tensor& draft,
                           const std::vector<int32_t>& before, const std::vector<Check>& checks) {
  std::vector<int32_t> row, draft_row, token;
  std::vector<float> keep, instead;
  for (const Check& c : checks) {
    row.push_back(c.row);
    draft_row.push_back(c.draft_row);
    token.push_back(c.token);
    keep.push_back(c.keep);
    instead.push_back(c.instead);
  }
  const DraftChecks columns{.row = ws.ints(row),
                            .draft_row = ws.ints(draft_row),
                            .token = ws.ints(token),
                            .keep = ws.floats(keep),
                            .instead = ws.floats(instead)};
  const Tensor ids = ws.ints(before);
  ws.begin_op({ids});
  ops.check_drafts(ids, target, draft, columns);
  ws.end_op();
  return {ids.as<int32_t>(), ids.as<int32_t>() + before.size()};
}

void expect_law(Ops& ops, Workspace& ws, Tensor logits, const std::vector<Params>& params) {
  std::vector<std::vector<Likely>> want;
  for (size_t r = 0; r < params.size(); ++r) {
    const bool greedy = params[r].temperature == 0 || params[r].top_p == 0;
    want.push_back(
        distribution(logits, static_cast<int64_t>(r), greedy ? Params{.top_k = 1} : params[r]));
  }
  const std::vector<int64_t> zeros(params.size(), 0);
  const SampleBatch batch = make_batch(ws, params, zeros, zeros);
  ws.begin_op({logits});
  ops.draw_logprobs(logits, batch);
  ws.end_op();
  for (size_t r = 0; r < params.size(); ++r) {
    std::map<int64_t, double> dist;
    for (const Likely& e : want[r]) dist[e.id] = std::log(e.p);
    for (int64_t i = 0; i < logits.cols(); ++i) {
      const double got = at(logits, static_cast<int64_t>(r), i);
      const auto found = dist.find(i);
      // Rounding to f32, and that of the exponent: (x - best) / temperature.
      if (found != dist.end())
        ASSERT_NEAR(got, found->second, 1e-6 * (1 + std::abs(found->second)))
            << "row " << r << " token " << i;
      else
        ASSERT_EQ(got, -INFINITY) << "row " << r << " token " << i;
    }
  }
}

TEST_P(OpSuite, DrawLogprobsAreThoseOfTheDraw) {
  std::vector<Params> kinds;
  for (const float temperature : {0.0f, 0.4f, 1.0f, 1.9f})
    for (const float top_p : {0.0f, 0.31f, 0.97f, 1.0f})
      for (const float min_p : {0.0f, 0.03f})
        for (const int top_k : {0, 1, 7, 100000})
          kinds.push_back({temperature, top_p, min_p, top_k});
  for (const int vocab : {1, 3, 511, 2000}) {
    Workspace ws(static_cast<uint64_t>(vocab));
    const Tensor logits = ws.random(DType::kF32, {std::ssize(kinds), vocab}, 2);
    if (vocab > 3)
      for (int64_t r = 0; r < logits.rows(); ++r) put(logits, r, r % vocab, -INFINITY);
    expect_law(*ops, ws, logits, kinds);
  }
}

TEST_P(OpSuite, DrawLogprobsOfWideRowsAndTies) {
  const std::vector<Params> kinds = {
      {.top_p = 0.9f}, {.top_k = 50}, {.top_p = 0.8f, .top_k = 900}, {}, {.min_p = 0.02f}};
  Workspace ws(4);
  expect_law(*ops, ws, ws.random(DType::kF32, {std::ssize(kinds), 30011}, 2.5), kinds);
  // Half of the tokens are equal: the lower ids are kept. 0.171 needs four of twenty equal ones.
  const Tensor ties = ws.random(DType::kF32, {3, 40});
  for (int64_t r = 0; r < 3; ++r)
    for (int64_t i = 0; i < 40; ++i) put(ties, r, i, i % 2 ? 1.5 : -9);
  expect_law(*ops, ws, ties, {{.top_k = 3}, {.top_p = 0.171f}, {.top_p = 0.171f, .top_k = 20}});
}

TEST_P(OpSuite, DraftsAreKeptByTheRatioOfTheirChances) {
  Workspace ws(1);
  const Tensor target = logs(ws, {{.5, .3, .2}, {.2, .5, .3}, {0, .6, .4}});
  const Tensor draft = logs(ws, {{.2, .5, .3}, {0, 0, 1}, {.2, .5, .3}});
  const float below = std::nextafter(0.6f, 0.f);
  EXPECT_EQ(check(*ops, ws, target, draft, {9, 9, 9}, {{0, 0, 1, below - 1e-6f, 0}}),
            (std::vector<int32_t>{1, 9, 9}));
  // Only token 0 is left in max(p - q, 0).
  for (const float instead : {0.f, .5f, .99999f})
    EXPECT_EQ(check(*ops, ws, target, draft, {9, 9, 9}, {{0, 0, 1, .6001f, instead}}),
              (std::vector<int32_t>{0, 9, 9}));
  // A certain draft is kept with p, and the rest is p without it: 0.625 and 0.375 of row 0 with .2.
  EXPECT_EQ(check(*ops, ws, target, draft, {9, 9, 9}, {{0, 1, 2, .1999f, 0}})[0], 2);
  EXPECT_EQ(check(*ops, ws, target, draft, {9, 9, 9}, {{0, 1, 2, .2001f, .6249f}})[0], 0);
  EXPECT_EQ(check(*ops, ws, target, draft, {9, 9, 9}, {{0, 1, 2, .2001f, .6251f}})[0], 1);
  // A token that the target cannot draw is never kept; equal distributions keep every token.
  EXPECT_EQ(check(*ops, ws, target, draft, {9, 9, 9}, {{2, 0, 0, 0, 0}})[2], 1);
  EXPECT_EQ(check(*ops, ws, target, draft, {9, 9, 9}, {{1, 2, 0, .9999999f, .5f}})[1], 0);
}

TEST_P(OpSuite, CheckDraftsMatchesItsDefinition) {
  for (const int vocab : {2, 37, 1500, 20011}) {
    Workspace ws(static_cast<uint64_t>(vocab));
    constexpr int kRows = 12;
    std::vector<std::vector<double>> p(kRows), q(kRows);
    for (auto* both : {&p, &q})
      for (auto& dist : *both) {
        double sum = 0;
        for (int i = 0; i < vocab; ++i) {
          dist.push_back(ws.rng.below(3) == 0 && i > 0 ? 0 : std::exp(ws.rng.normal()));
          sum += dist.back();
        }
        for (double& v : dist) v /= sum;
      }
    const Tensor target = logs(ws, p), draft = logs(ws, q);
    std::vector<Check> checks;
    std::vector<int32_t> before, want;
    for (int r = 0; r < kRows; ++r) {
      // The definition is given the values that f32 holds.
      for (int i = 0; i < vocab; ++i) {
        p[static_cast<size_t>(r)][static_cast<size_t>(i)] = std::exp(at(target, r, i));
        q[static_cast<size_t>(r)][static_cast<size_t>(i)] = std::exp(at(draft, r, i));
      }
      const auto unit = [&] { return static_cast<float>(ws.rng.below(1 << 24)) * 0x1p-24f; };
      const int32_t from = kRows - 1 - r;
      before.push_back(-7);
      if (r % 5 == 4) {
        want.push_back(-7);
        continue;
      }
      const Check c{r, from, static_cast<int32_t>(ws.rng.below(vocab)), unit(), unit()};
      checks.push_back(c);
      want.push_back(checked(p[static_cast<size_t>(r)], q[static_cast<size_t>(from)], c.token,
                             static_cast<double>(c.keep), static_cast<double>(c.instead), -7));
    }
    EXPECT_EQ(check(*ops, ws, target, draft, before, checks), want) << "vocab " << vocab;
  }
}

}  // namespace
}  // namespace skiff::suite

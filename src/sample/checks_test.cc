// Draws whose drafts are checked by other rules than target_match.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "ops/ops.h"
#include "sample/sampler.h"

namespace skiff::sample {
namespace {

constexpr int kVocab = 6, kSlots = 128, kDrafts = 2;
using Table = std::array<std::array<double, kVocab>, kVocab>;  // [token before][token]

Table random_table(uint64_t seed, double spread) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> normal;
  Table table{};
  for (auto& row : table) {
    double sum = 0;
    for (double& p : row) sum += p = std::exp(spread * normal(rng));
    for (double& p : row) p /= sum;
  }
  return table;
}

// The distribution of a draw from logits log p with these parameters, by its definition.
std::array<double, kVocab> distribution(std::array<double, kVocab> p,
                                        const SamplingParams& params) {
  const double best = *std::ranges::max_element(p);
  if (params.temperature == 0) {
    for (double& v : p) v = v == best ? 1 : 0;
    return p;
  }
  double sum = 0;
  for (double& v : p) sum += v = std::pow(v, 1 / static_cast<double>(params.temperature));
  for (double& v : p) v /= sum;
  std::array<double, kVocab> sorted = p;
  std::ranges::sort(sorted, std::greater());
  double mass = 0, least = 0, kept = 0;
  for (int i = 0; i < kVocab; ++i) {
    if (params.top_k > 0 && i >= params.top_k) break;
    least = sorted[static_cast<size_t>(i)];
    kept += least;
  }
  double left = kept;
  for (int i = 0; params.top_p < 1 && i < kVocab; ++i) {
    mass += sorted[static_cast<size_t>(i)];
    if (mass >= static_cast<double>(params.top_p) * left) {
      least = std::max(least, sorted[static_cast<size_t>(i)]);
      break;
    }
  }
  sum = 0;
  for (double& v : p) sum += v = v >= least ? v : 0;
  for (double& v : p) v /= sum;
  return p;
}

int pick(const std::array<double, kVocab>& p, std::mt19937_64& rng) {
  double u = std::uniform_real_distribution<double>()(rng);
  for (int i = 0; i < kVocab; ++i) {
    u -= p[static_cast<size_t>(i)];
    if (u < 0) return i;
  }
  return static_cast<int>(std::ranges::max_element(p) - p.begin());
}

// A Markov chain whose tokens are drafted by another one.
class Chains {
 public:
  Chains(const SamplingParams& params, const Table& target, const Table& draft)
      : params_(params), target_(target), draft_(draft) {}

  // Counts the first two tokens behind token 0, and how many of both drafts were kept.
  void run(int rounds) {
    for (int round = 0; round < rounds; ++round) step(round);
  }
  std::array<std::array<int, kVocab>, kVocab> pairs{};
  std::array<int, kDrafts + 1> kept{};

 private:
  void step(int round) {
    std::vector<DrawRow> rows;
    std::vector<std::array<int, kDrafts>> drafts;
    for (int slot = 0; slot < kSlots; ++slot) {
      params_.seed = static_cast<uint64_t>(round) * kSlots + static_cast<uint64_t>(slot) + 1;
      sampler_.open(
          {.slot = slot, .params = params_, .history = {0}, .prompt_len = 1, .stop_tokens = {}});
      rows.push_back({.slot = slot});
      set(logits_, slot, target_[0]);
      auto& d = drafts.emplace_back();
      for (int i = 0, before = 0; i < kDrafts; before = d[static_cast<size_t>(i++)]) {
        const auto q = distribution(draft_[static_cast<size_t>(before)], params_);
        d[static_cast<size_t>(i)] = pick(q, rng_);
        set(draft_probs_, i * kSlots + slot, q);
      }
    }
    for (int slot = 0; slot < kSlots; ++slot)
      for (int i = 0, after = slot; i < kDrafts; ++i) {
        const int token = drafts[static_cast<size_t>(slot)][static_cast<size_t>(i)];
        set(logits_, static_cast<int>(rows.size()), target_[static_cast<size_t>(token)]);
        rows.push_back({.slot = slot, .depth = i + 1, .after = after, .guess = token});
        after = static_cast<int>(rows.size()) - 1;
      }
    const SampleOutput out = sampler_.sample(logits_, rows);
    std::vector<std::vector<Token>> tokens(kSlots);
    for (size_t r = 0; r < rows.size(); ++r)
      if (out.tokens[r] != kNoToken)
        tokens[static_cast<size_t>(rows[r].slot)].push_back(out.tokens[r]);
    count(tokens);
  }
  // Draws the second token of chains that have gained only one.
  void count(std::vector<std::vector<Token>>& tokens) {
    std::vector<DrawRow> rows;
    for (int slot = 0; slot < kSlots; ++slot) {
      const auto& got = tokens[static_cast<size_t>(slot)];
      ++kept[got.size() - 1];
      if (got.size() > 1) continue;
      set(logits_, static_cast<int>(rows.size()), target_[static_cast<size_t>(got[0])]);
      rows.push_back({.slot = slot});
    }
    const SampleOutput out = sampler_.sample(logits_, rows);
    for (size_t r = 0; r < rows.size(); ++r)
      tokens[static_cast<size_t>(rows[r].slot)].push_back(out.tokens[r]);
    for (const auto& got : tokens)
      ++pairs[static_cast<size_t>(got[0])][static_cast<size_t>(got[1])];
  }
  static void set(Tensor t, int row, const std::array<double, kVocab>& p) {
    for (int i = 0; i < kVocab; ++i)
      t.row<float>(row)[i] = static_cast<float>(std::log(p[static_cast<size_t>(i)]));
  }

  SamplingParams params_;
  const Table &target_, &draft_;
  std::mt19937_64 rng_{7};
  std::unique_ptr<Ops> ops_ = make_reference_ops();
  Buffer logits_memory_{Device{}, sizeof(float) * kSlots*(1 + kDrafts) * kVocab};
  Buffer draft_probs_memory_{Device{}, sizeof(float) * kSlots* kDrafts* kVocab};
  Tensor logits_ = logits_memory_.view(DType::kF32, {int64_t{kSlots} * (1 + kDrafts), kVocab});
  Tensor draft_probs_ = draft_probs_memory_.view(DType::kF32, {int64_t{kSlots} * kDrafts, kVocab});
  Sampler sampler_{{.vocab = kVocab, .max_slots = kSlots, .max_rows = kSlots * (1 + kDrafts)},
                   *ops_,
                   {.how = {.rule = DraftRule::kRejection},
                    .draft_probs = draft_probs_,
                    .drafts_per_slot = kDrafts}};
};

// Pearson's statistic stays below this with a probability of 1 - 1e-6 (Wilson and Hilferty 1931).
double limit(int freedom) {
  constexpr double kZ = 4.7534;
  const double a = 2.0 / (9 * freedom);
  return freedom * std::pow(1 - a + kZ * std::sqrt(a), 3);
}

class RejectionTest : public testing::TestWithParam<SamplingParams> {};

// The first two tokens have the distribution of decoding without drafts, and as many drafts are
// kept as the overlap of both distributions says: sum of min(p, q).
TEST_P(RejectionTest, KeepsTheDistribution) {
  constexpr int kRounds = 1600;
  const Table target = random_table(1, 1.2), draft = random_table(2, 1.2);
  Chains chains(GetParam(), target, draft);
  chains.run(kRounds);
  const double n = double{kRounds} * kSlots;
  const auto first = distribution(target[0], GetParam());
  double chi = 0;
  int cells = 0;
  for (int a = 0; a < kVocab; ++a) {
    const auto second = distribution(target[static_cast<size_t>(a)], GetParam());
    for (int b = 0; b < kVocab; ++b) {
      const double want = n * first[static_cast<size_t>(a)] * second[static_cast<size_t>(b)];
      const double got = chains.pairs[static_cast<size_t>(a)][static_cast<size_t>(b)];
      if (want == 0) {
        EXPECT_EQ(got, 0) << a << ", " << b;
        continue;
      }
      chi += (got - want) * (got - want) / want;
      ++cells;
    }
  }
  EXPECT_LT(chi, cells > 1 ? limit(cells - 1) : 1e-9);

  const auto q = distribution(draft[0], GetParam());
  double overlap = 0;
  for (size_t i = 0; i < kVocab; ++i) overlap += std::min(first[i], q[i]);
  const double refused = n * (1 - overlap);
  EXPECT_NEAR(chains.kept[0], refused, 5 * std::sqrt(n * overlap * (1 - overlap)) + 1e-6 * n);
  EXPECT_GT(chains.kept[0] + chains.kept[1] + chains.kept[2], 0);
}

INSTANTIATE_TEST_SUITE_P(Params, RejectionTest,
                         testing::Values(SamplingParams{.temperature = 1},
                                         SamplingParams{.temperature = 0.6f, .top_p = 0.8f},
                                         SamplingParams{.temperature = 1.3f, .top_k = 3},
                                         SamplingParams{.temperature = 0}));

// Three rows of one slot with the drafts 1 and 2 behind them; row r is most likely to draw
// `best[r]`.
struct Fixture {
  explicit Fixture(const DraftCheck& how, const SamplingParams& params = {.temperature = 0})
      : sampler({.vocab = kVocab, .max_slots = 4}, *ops, {.how = how, .draft_probs = {}}) {
    sampler.open({.slot = 0, .params = params, .history = {5}, .prompt_len = 1, .stop_tokens = {}});
  }
  std::vector<Token> draw(const std::array<std::array<double, kVocab>, 3>& p) {
    Buffer memory(Device{}, sizeof(float) * 3 * kVocab);
    const Tensor logits = memory.view(DType::kF32, {3, kVocab});
    for (size_t r = 0; r < 3; ++r)
      for (size_t i = 0; i < kVocab; ++i)
        logits.row<float>(static_cast<int64_t>(r))[i] = static_cast<float>(std::log(p[r][i]));
    const std::vector<DrawRow> rows{{.slot = 0},
                                    {.slot = 0, .depth = 1, .after = 0, .guess = 1},
                                    {.slot = 0, .depth = 2, .after = 1, .guess = 2}};
    out = sampler.sample(logits, rows);
    std::vector<Token> tokens = out.tokens;
    std::erase(tokens, kNoToken);
    return tokens;
  }
  std::unique_ptr<Ops> ops = make_reference_ops();
  Sampler sampler;
  SampleOutput out;
};

constexpr std::array<double, kVocab> kFirst = {.5, .3, .1, .04, .03, .03};   // draft 1 is second
constexpr std::array<double, kVocab> kSecond = {.5, .1, .3, .04, .03, .03};  // so is draft 2
constexpr std::array<double, kVocab> kThird = {.1, .1, .1, .5, .1, .1};

TEST(Checks, RelaxedKeepsNearlyBestDraftsInsideAThought) {
  const DraftCheck how{.rule = DraftRule::kRelaxed, .think_begin = 5, .think_end = 4};
  Fixture thinking(how);
  EXPECT_EQ(thinking.draw({kFirst, kSecond, kThird}), (std::vector<Token>{1, 2, 3}));
  DraftCheck strict = how;
  strict.delta = .1f;
  EXPECT_EQ(Fixture(strict).draw({kFirst, kSecond, kThird}), (std::vector<Token>{0}));
  DraftCheck other = how;
  other.think_begin = 3;
  EXPECT_EQ(Fixture(other).draw({kFirst, kSecond, kThird}), (std::vector<Token>{0}));
}

TEST(Checks, ADraftThatIsKeptHasItsOwnLogprob) {
  Fixture thinking({.rule = DraftRule::kRelaxed, .think_begin = 5, .think_end = 4},
                   {.temperature = 0, .logprobs = 2});
  ASSERT_EQ(thinking.draw({kFirst, kSecond, kThird}), (std::vector<Token>{1, 2, 3}));
  const auto& first = *thinking.out.logprobs[0];
  EXPECT_EQ(first.chosen.token, 1);
  EXPECT_NEAR(first.chosen.logprob, std::log(.3), 1e-5);
  EXPECT_EQ(first.rank, 2);
  ASSERT_EQ(first.top.size(), 2u);
  EXPECT_EQ(first.top[0].token, 0);
  EXPECT_EQ(thinking.out.logprobs[2]->chosen.token, 3);
}

// The seed is one with which the usual draw refuses the first draft.
TEST(Checks, TopPKeepsDraftsThatMayBeDrawn) {
  for (uint64_t seed = 1; seed < 50; ++seed) {
    const SamplingParams params{.temperature = 1, .top_p = .75f, .seed = seed};
    const std::vector<Token> usual = Fixture({}, params).draw({kFirst, kSecond, kThird});
    const std::vector<Token> kept =
        Fixture({.rule = DraftRule::kTopP}, params).draw({kFirst, kSecond, kThird});
    ASSERT_EQ(kept.size(), 3u);
    EXPECT_EQ(kept[0], 1);
    EXPECT_EQ(kept[1], 2);
    if (usual.size() == 3) {
      EXPECT_EQ(usual, kept);
    }
  }
}

TEST(Checks, GreedyTakesTheMostLikelyToken) {
  for (uint64_t seed = 1; seed < 20; ++seed) {
    Fixture greedy({.rule = DraftRule::kGreedy}, {.temperature = 2, .seed = seed});
    EXPECT_EQ(greedy.draw({kSecond, kSecond, kThird}), (std::vector<Token>{0}));
  }
}

// Penalties count each token that is drawn, so such sequences are checked depth by depth.
TEST(Checks, PenaltiesAreDrawnAlone) {
  Fixture fixture({.rule = DraftRule::kTopP}, {.temperature = 1, .presence = 1});
  int raw = 4;
  EXPECT_FALSE(fixture.sampler.draws_at_once(0, 2, raw));
}

}  // namespace
}  // namespace skiff::sample

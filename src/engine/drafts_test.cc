// Steps with drafts, on a small model: tokens and log-probabilities are those of decoding without
// drafts, bit for bit, whatever the drafts, the rules of a sequence and the other sequences in the
// step.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

#include "engine/model_testing.h"
#include "engine/step_executor.h"
#include "ops/reference/reference_ops.h"

namespace skiff::engine {
namespace {

constexpr int kBlock = 16, kContext = 128, kSeqs = 7;
constexpr sched::Limits kLimits{
    .max_seqs = 8, .max_rows = 96, .max_context = kContext, .max_logit_rows = 64};

// Counts draws and notes which steps may be recorded.
class NotingOps final : public reference::ReferenceOps {
 public:
  void sample(Tensor out_ids, Tensor logits, const SampleBatch& batch) override {
    ++draws;
    ReferenceOps::sample(out_ids, logits, batch);
  }
  void replay(const std::optional<ReplayKey>& key, const std::function<void()>& work) override {
    if (key) keys.push_back(*key);
    work();
  }
  int draws = 0;
  std::vector<ReplayKey> keys;
};

struct Text {
  std::vector<Token> tokens;  // prompt and output
  int computed = 0;           // rows in the cache
  std::vector<PositionLogprobs> logprobs;
};

struct Guess {
  size_t seq;
  std::vector<Token> drafts;
};

bool looks_back(size_t seq) { return seq == 2 || seq == 4 || seq == 6; }

SamplingParams params_of(size_t seq) {
  SamplingParams p{.temperature = seq == 0 ? 0.f : 1.1f, .top_p = 0.95f, .seed = 100 + seq};
  if (seq >= 2) p.logprobs = static_cast<int>(seq) - 2;
  if (seq == 2) p.repetition = 1.3f, p.frequency = 0.4f, p.presence = 0.2f;
  if (seq == 3) p.logit_bias = {{7, 1.5f}, {9, -2.f}}, p.bad_words = {{11}};
  if (seq == 4) p.min_tokens = 12, p.bad_words = {{1, 2}, {5, 6, 7}};
  if (seq == 6) p.min_tokens = 30, p.logit_bias = {{3, 2.f}};
  return p;
}

// Sequences that decode side by side, each with its own blocks.
class Decoding {
 public:
  Decoding(const model::LoadedModel& model, NotingOps& ops, const Captures& captures = {},
           std::optional<double> forced_rate = {})
      : kv_(model.spec, kSeqs * kContext / kBlock, kBlock, {.dtype = DType::kF32}, {}),
        executor_(model, ops, mesh_, kv_.layers(),
                  {.limits = kLimits, .captures = captures, .forced_rate = forced_rate}),
        texts_(kSeqs) {
    for (size_t s = 0; s < kSeqs; ++s)
      for (size_t i = 0; i < 3 + s; ++i)
        texts_[s].tokens.push_back(static_cast<Token>((5 * s + 11 * i) % 97));
  }
  const Text& text(size_t seq) const { return texts_[seq]; }
  size_t output(size_t seq) const { return texts_[seq].tokens.size() - (3 + seq); }

  StepPlan launch(const std::vector<Guess>& guesses) {
    StepPlan plan{.step = ++step_, .page_start = {0}};
    for (const Guess& guess : guesses) add(plan, guess);
    executor_.launch(plan);
    return plan;
  }
  StepResult collect(const StepPlan& plan) {
    StepResult result = executor_.collect();
    EXPECT_EQ(result.step, plan.step);
    for (size_t i = 0; i < plan.spans.size(); ++i) {
      const Span& span = plan.spans[i];
      Text& text = texts_[span.seq];
      const std::vector<Token>& got = result.tokens[i];
      EXPECT_FALSE(got.empty());
      EXPECT_LE(std::ssize(got), span.draft + 1);
      text.computed = span.begin + span.count - span.draft + static_cast<int>(got.size()) - 1;
      text.tokens.insert(text.tokens.end(), got.begin(), got.end());
      text.logprobs.insert(text.logprobs.end(), result.logprobs[i].begin(),
                           result.logprobs[i].end());
    }
    return result;
  }
  StepResult step(const std::vector<Guess>& guesses) { return collect(launch(guesses)); }

 private:
  void add(StepPlan& plan, const Guess& guess) {
    const Text& text = texts_[guess.seq];
    const int slot = static_cast<int>(guess.seq), drafts = static_cast<int>(guess.drafts.size());
    const int left = static_cast<int>(text.tokens.size()) - text.computed;
    plan.spans.push_back({.seq = guess.seq,
                          .slot = slot,
                          .begin = text.computed,
                          .count = left + drafts,
                          .draft = drafts,
                          .sample = true});
    plan.tokens.insert(plan.tokens.end(), text.tokens.end() - left, text.tokens.end());
    plan.tokens.insert(plan.tokens.end(), guess.drafts.begin(), guess.drafts.end());
    for (int page = 0; page < kContext / kBlock; ++page)
      plan.pages.push_back(slot * (kContext / kBlock) + page);
    plan.page_start.push_back(static_cast<int32_t>(plan.pages.size()));
    if (text.computed > 0) return;
    plan.opened.push_back({.slot = slot,
                           .params = params_of(guess.seq),
                           .history = text.tokens,
                           .prompt_len = static_cast<int>(text.tokens.size()),
                           .stop_tokens = {5, 40, 41}});
  }

  model::KvCache kv_;
  comm::Mesh mesh_ = comm::make_solo_mesh();
  StepExecutor executor_;
  std::vector<Text> texts_;
  uint64_t step_ = 0;
};

bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

void expect_same(const PositionLogprobs& got, const PositionLogprobs& want) {
  const auto same = [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.token == b.token && same_bits(a.logprob, b.logprob);
  };
  EXPECT_TRUE(same(got.chosen, want.chosen));
  EXPECT_EQ(got.rank, want.rank);
  EXPECT_TRUE(std::ranges::equal(got.top, want.top, same));
}

class DraftsTest : public testing::Test {
 protected:
  static constexpr size_t kOutput = 60;

  DraftsTest()
      : folder_(testing::UnitTest::GetInstance()->current_test_info()->name()),
        model_(model::load_model(folder_.path(), model::read_model_config(folder_.path()),
                                 {.format = model::LoadFormat::kDummy}, ops_)),
        plain_(model_, ops_) {
    std::vector<Guess> all;
    for (size_t s = 0; s < kSeqs; ++s) all.push_back({s, {}});
    for (size_t i = 0; i < kOutput; ++i) plain_.step(all);
  }

  // Returns `k` drafts for `seq`, of which the one at `wrong` is wrong.
  Guess guess(const Decoding& decoding, size_t seq, size_t k, size_t wrong) const {
    const size_t said = decoding.text(seq).tokens.size();
    const std::vector<Token>& text = plain_.text(seq).tokens;
    Guess out{seq, {}};
    for (size_t d = 0; d < k && said + d < text.size(); ++d)
      out.drafts.push_back(d == wrong ? (text[said + d] + 1) % 97 : text[said + d]);
    return out;
  }
  Guess random_guess(const Decoding& decoding, size_t seq, std::mt19937_64& rng) const {
    return guess(decoding, seq, rng() % 6, rng() % 8);
  }
  bool done(const Decoding& decoding, size_t seq) const { return decoding.output(seq) >= kOutput; }

  void expect_begins(const Decoding& decoding, size_t seq) const {
    const std::vector<Token>&got = decoding.text(seq).tokens, &want = plain_.text(seq).tokens;
    ASSERT_LE(got.size(), want.size());
    EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin()));
  }

  void expect_plain(const Decoding& decoding) const {
    for (size_t s = 0; s < kSeqs; ++s) {
      SCOPED_TRACE(testing::Message() << "sequence " << s);
      const Text &got = decoding.text(s), &want = plain_.text(s);
      const size_t n = std::min(got.tokens.size(), want.tokens.size());
      ASSERT_EQ(std::vector(got.tokens.begin(), got.tokens.begin() + static_cast<long>(n)),
                std::vector(want.tokens.begin(), want.tokens.begin() + static_cast<long>(n)));
      ASSERT_EQ(got.logprobs.size(), s >= 2 ? decoding.output(s) : 0);
      for (size_t i = 0; i < std::min(got.logprobs.size(), want.logprobs.size()); ++i)
        expect_same(got.logprobs[i], want.logprobs[i]);
    }
  }

  DummyFolder folder_;
  NotingOps ops_;
  model::LoadedModel model_;
  Decoding plain_;
};

TEST_F(DraftsTest, TextsAreThoseOfDecoding) {
  std::mt19937_64 rng(3);
  Decoding decoding(model_, ops_);
  size_t drafted = 0, gained = 0;
  for (bool all_done = false; !all_done;) {
    all_done = true;
    std::vector<Guess> guesses;
    for (size_t s = 0; s < kSeqs; ++s) {
      if (done(decoding, s)) continue;
      all_done = false;
      if (rng() % 8 == 0) continue;
      guesses.push_back(random_guess(decoding, s, rng));
      drafted += guesses.back().drafts.size();
    }
    for (const auto& tokens : decoding.step(guesses).tokens) gained += tokens.size() - 1;
  }
  ASSERT_NO_FATAL_FAILURE(expect_plain(decoding));
  EXPECT_GT(gained, 100u);
  EXPECT_GT(drafted, gained + 100);
}

// For benchmarks: all drafts are kept, whatever they are, or none is.
TEST_F(DraftsTest, VerdictsMayBeForced) {
  constexpr size_t kSteady = 1;
  Decoding all(model_, ops_, {}, 1.), none(model_, ops_, {}, 0.);
  all.step({{kSteady, {}}}), none.step({{kSteady, {}}});
  EXPECT_EQ(all.step({{kSteady, {17, 18, 19}}}).tokens[0].size(), 4u);
  const std::vector<Token>& text = all.text(kSteady).tokens;
  EXPECT_TRUE(std::ranges::equal(std::span(text).last(4).first(3), std::vector<Token>{17, 18, 19}));
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(none.step({guess(none, kSteady, 3, 9)}).tokens[0].size(), 1u) << "right ones, too";
  expect_begins(none, kSteady);
}

// One group's drafts are checked while another group's step is computed.
TEST_F(DraftsTest, TwoStepsInFlight) {
  std::mt19937_64 rng(4);
  Decoding decoding(model_, ops_);
  std::optional<StepPlan> earlier;
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<Guess> guesses;
    for (size_t s = static_cast<size_t>(turn) % 2; s < kSeqs; s += 2)
      if (!done(decoding, s)) guesses.push_back(random_guess(decoding, s, rng));
    const StepPlan plan = decoding.launch(guesses);
    if (earlier) decoding.collect(*earlier);
    earlier = plan;
  }
  decoding.collect(*earlier);
  for (size_t s = 0; s < kSeqs; ++s) EXPECT_TRUE(done(decoding, s));
  expect_plain(decoding);
}

// If no rule looks back, all drafts of all sequences are checked by the draw that the step makes
// anyway; otherwise by one more draw for each depth that some sequence reaches.
TEST_F(DraftsTest, DrawsArePerDepthAtMost) {
  Decoding decoding(model_, ops_);
  std::vector<Guess> first;
  for (size_t s = 0; s < kSeqs; ++s) first.push_back({s, {}});
  decoding.step(first);
  const auto draws = [&](const std::vector<Guess>& guesses) {
    const int before = ops_.draws;
    decoding.step(guesses);
    return ops_.draws - before;
  };
  constexpr size_t kNever = 100;
  std::vector<Guess> steady, back;
  for (size_t s = 0; s < kSeqs; ++s)
    (looks_back(s) ? back : steady).push_back(guess(decoding, s, 3, s == 5 ? 1 : kNever));
  EXPECT_EQ(draws(steady), 1);
  EXPECT_EQ(draws(back), 1 + 3);
  back.clear();
  for (const size_t s : {2, 4, 6}) back.push_back(guess(decoding, s, 5, s / 2 - 1));  // 0, 1, 2
  back.push_back(guess(decoding, 1, 5, kNever));
  EXPECT_EQ(draws(back), 1 + 2) << "the longest run of right drafts has two";
  expect_plain(decoding);
}

// Steps with the same number of drafts for each sequence, or nearly, are padded and may be
// recorded; others are not.
TEST_F(DraftsTest, UniformStepsAreRecorded) {
  Decoding decoding(model_, ops_, {.sizes = {2, 4, 8}, .drafts = 2});
  std::vector<Guess> first;
  for (size_t s = 0; s < kSeqs; ++s) first.push_back({s, {}});
  ops_.keys.clear();
  decoding.step(first);
  EXPECT_TRUE(ops_.keys.empty()) << "prompts of any length";
  std::mt19937_64 rng(5);
  std::vector<ReplayKey> want;
  for (const auto& [seqs, k] : std::vector<std::pair<size_t, size_t>>{
           {1, 2}, {2, 2}, {3, 0}, {5, 2}, {7, 2}, {7, 0}, {6, 1}, {4, 3}, {3, 2}, {7, 2}}) {
    std::vector<Guess> guesses;
    for (size_t s = 0; s < seqs; ++s) guesses.push_back(guess(decoding, s, k, rng() % 4));
    decoding.step(guesses);
    const int padded = seqs <= 2 ? 2 : seqs <= 4 ? 4 : 8;
    if (k == 2) want.push_back({.rows = 3 * padded, .rows_per_seq = 3});
    if (k == 0) want.push_back({.rows = padded, .rows_per_seq = 1});
    EXPECT_EQ(ops_.keys, want) << seqs << " sequences, " << k << " drafts";
  }
  decoding.step({guess(decoding, 0, 2, 9), guess(decoding, 1, 1, 1)});
  want.push_back({.rows = 6, .rows_per_seq = 3});
  EXPECT_EQ(ops_.keys, want);
  decoding.step({guess(decoding, 0, 2, 9), guess(decoding, 1, 0, 9)});
  EXPECT_EQ(ops_.keys, want);
  expect_plain(decoding);
}

TEST_F(DraftsTest, StepsOfOneSequenceAreRecordedWithAnyNumberOfDrafts) {
  Decoding decoding(model_, ops_, {.sizes = {1, 4}, .drafts = 3});
  decoding.step({{0, {}}, {1, {}}});
  ops_.keys.clear();
  std::vector<ReplayKey> want;
  for (const size_t k : {1, 3, 2, 4}) {
    decoding.step({guess(decoding, 0, k, 9)});
    if (k <= 3)
      want.push_back({.rows = static_cast<int>(k) + 1, .rows_per_seq = static_cast<int>(k) + 1});
    EXPECT_EQ(ops_.keys, want) << k << " drafts";
  }
  decoding.step({guess(decoding, 0, 2, 9), guess(decoding, 1, 2, 9)});
  EXPECT_EQ(ops_.keys, want) << "of two sequences, fewer than the most";
  expect_plain(decoding);
}

}  // namespace
}  // namespace skiff::engine

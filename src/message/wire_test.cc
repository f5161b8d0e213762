#include "message/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <random>

namespace skiff {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

class RandomSteps {
 public:
  explicit RandomSteps(uint64_t seed) : rng_(seed) {}

  StepPlan plan() {
    StepPlan plan{.step = rng_(), .page_start = {0}};
    plan.saves = list<BlockCopy>([&] { return BlockCopy{number(), number()}; });
    plan.loads = list<BlockCopy>([&] { return BlockCopy{number(), number()}; });
    plan.spans = list<Span>([&] { return span(); });
    for (const Span& s : plan.spans) {
      for (int i = 0; i < s.count; ++i) plan.tokens.push_back(below(9) ? number() : kOnDevice);
      for (int i = below(5); i > 0; --i) plan.pages.push_back(number());
      plan.page_start.push_back(static_cast<int32_t>(plan.pages.size()));
    }
    plan.opened = list<OpenSlot>([&] { return opened(); });
    plan.drafts = below(2) == 1;
    plan.chained = plan.drafts && std::ranges::all_of(plan.spans, [](const Span& span) {
                     return span.sample && span.count == 1 + span.draft;
                   });
    return plan;
  }

  StepResult result() {
    const size_t spans = static_cast<size_t>(below(6));
    StepResult result{.step = rng_(), .seconds = real(), .copy_seconds = real()};
    for (size_t i = 0; i < spans; ++i) {
      result.tokens.push_back(tokens());
      result.drafts.push_back(tokens());
      result.logprobs.push_back(list<PositionLogprobs>([&] { return position(); }));
      result.prompt_logprobs.push_back(list<PositionLogprobs>([&] { return position(); }));
      if (spans % 3 == 1)
        result.draft_logprobs.push_back(list<PositionLogprobs>([&] { return position(); }));
      if (spans % 2) result.pooled.push_back(list<float>([&] { return real(); }));
    }
    return result;
  }

  int below(int n) { return static_cast<int>(rng_() % static_cast<uint64_t>(n)); }

 private:
  template <class T>
  std::vector<T> list(const std::function<T()>& make) {
    std::vector<T> out(static_cast<size_t>(below(6)));
    for (T& item : out) item = make();
    return out;
  }
  int number() { return static_cast<int>(rng_() >> 33); }
  float real() { return static_cast<float>(below(2000) - 1000) / 64; }
  std::vector<Token> tokens() {
    return list<Token>([&] { return number(); });
  }
  Span span() {
    const int count = 1 + below(9), draft = below(count);
    const bool sample = draft > 0 || below(2);
    return {.seq = rng_(),
            .slot = number(),
            .begin = below(1 << 20),
            .count = count,
            .draft = draft,
            .sample = sample,
            .prompt_logprobs = below(2) ? kNoLogprobs : number(),
            .next = below(2) ? -1 : number(),
            .pool = !sample && below(2),
            .pool_logits = false,
            .draft_logprobs = below(2) ? kNoLogprobs : number(),
            .after_drafts = sample && count == 1 + draft && below(2)};
  }
  OpenSlot opened() {
    OpenSlot open{.slot = number(), .history = tokens(), .stop_tokens = tokens()};
    open.prompt_len = below(static_cast<int>(open.history.size()) + 1);
    open.written = below(open.prompt_len + 1);
    SamplingParams& p = open.params;
    p = {.temperature = real(),
         .top_p = real(),
         .min_p = real(),
         .top_k = number(),
         .repetition = real(),
         .presence = real(),
         .frequency = real(),
         .seed = rng_(),
         .logprobs = number(),
         .prompt_logprobs = number(),
         .draft_logprobs = below(2) == 1,
         .min_tokens = number()};
    p.logit_bias = list<std::pair<Token, float>>([&] { return std::pair(number(), real()); });
    p.bad_words = list<std::vector<Token>>([&] { return tokens(); });
    open.pooling = {
        .rows = static_cast<Pooling::Rows>(below(4)), .logits = below(2) == 1, .columns = tokens()};
    return open;
  }
  PositionLogprobs position() {
    const auto one = [&] { return TokenLogprob{number(), real()}; };
    return {.chosen = one(), .rank = number(), .top = list<TokenLogprob>(one)};
  }

  std::mt19937_64 rng_;
};

Bytes bytes_of(const StepPlan& plan) {
  Bytes out;
  write_plan(plan, out);
  return out;
}
Bytes bytes_of(const StepResult& result) {
  Bytes out;
  write_result(result, out);
  return out;
}
std::string refusal(const Bytes& bytes) {
  const auto plan = read_plan(bytes);
  return plan ? "" : plan.error().what;
}

// What was sent is not followed before its receiver has made a constraint of it: Sampler::open
// checks the words of its masks.
TEST(Wire, AConstraintIsSentAsItsSource) {
  StepPlan plan{.step = 7, .page_start = {0}};
  plan.opened.resize(2);
  plan.opened[1].params.constraint = std::make_shared<SentConstraint>(R"({"kind":2,"text":"a+"})");
  const auto back = read_plan(bytes_of(plan));
  ASSERT_TRUE(back) << back.error().what;
  EXPECT_EQ(back->opened[0].params.constraint, nullptr);
  ASSERT_NE(back->opened[1].params.constraint, nullptr);
  EXPECT_EQ(back->opened[1].params.constraint->source(), R"({"kind":2,"text":"a+"})");
  EXPECT_EQ(back->opened[1].params.constraint->mask_words(), 0u);
  EXPECT_EQ(bytes_of(*back), bytes_of(plan));
  Bytes cut = bytes_of(plan);
  cut.resize(cut.size() - 20);
  EXPECT_FALSE(read_plan(cut));
}

TEST(Wire, RandomStepsComeBackAsTheyWere) {
  RandomSteps random(1);
  for (int i = 0; i < 2000; ++i) {
    const StepPlan plan = random.plan();
    const auto plan_back = read_plan(bytes_of(plan));
    ASSERT_TRUE(plan_back) << plan_back.error().what;
    ASSERT_EQ(*plan_back, plan);
    const StepResult result = random.result();
    const auto result_back = read_result(bytes_of(result));
    ASSERT_TRUE(result_back) << result_back.error().what;
    ASSERT_EQ(*result_back, result);
  }
}

TEST(Wire, AStreamIsCutByHeaders) {
  RandomSteps random(2);
  const StepPlan plan = random.plan();
  const StepResult result = random.result();
  Bytes stream = bytes_of(plan);
  const size_t first = stream.size();
  write_result(result, stream);
  const auto body = wire_body(std::span(stream).first(kWireHeader));
  ASSERT_TRUE(body);
  EXPECT_EQ(kWireHeader + *body, first);
  const auto plan_back = read_plan(std::span(stream).first(first));
  const auto result_back = read_result(std::span(stream).subspan(first));
  ASSERT_TRUE(plan_back && result_back);
  EXPECT_EQ(*plan_back, plan);
  EXPECT_EQ(*result_back, result);
}

TEST(Wire, WhatIsCutAnywhereIsRefused) {
  RandomSteps random(3);
  for (int i = 0; i < 20; ++i) {
    const StepPlan plan = random.plan();
    const StepResult result = random.result();
    for (Bytes whole : {bytes_of(plan), bytes_of(result)}) {
      for (size_t size = 0; size < whole.size(); ++size) {
        Bytes cut(whole.begin(), whole.begin() + static_cast<long>(size));
        ASSERT_FALSE(read_plan(cut));
        ASSERT_FALSE(read_result(cut));
        if (size < kWireHeader) continue;
        // The header of a shorter message, too.
        const uint64_t body = size - kWireHeader;
        std::memcpy(cut.data() + 8, &body, sizeof body);
        ASSERT_FALSE(read_plan(cut));
        ASSERT_FALSE(read_result(cut));
      }
      whole.push_back({});
      ASSERT_FALSE(read_plan(whole));
      ASSERT_FALSE(read_result(whole));
    }
  }
}

// Whatever becomes of the bytes, they are refused or are the one form of what was read.
TEST(Wire, ChangedBytesAreRefusedOrMeanWhatTheySay) {
  RandomSteps random(4);
  int read = 0, refused = 0;
  for (int i = 0; i < 5000; ++i) {
    Bytes bytes = bytes_of(random.plan());
    for (int n = 1 + random.below(3); n > 0; --n) {
      const auto at = static_cast<size_t>(random.below(static_cast<int>(bytes.size())));
      bytes[at] ^= static_cast<std::byte>(1 << random.below(8));
    }
    const auto plan = read_plan(bytes);
    ++(plan ? read : refused);
    if (plan) {
      ASSERT_EQ(bytes_of(*plan), bytes);
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 100);
}

TEST(Wire, RefusalsSayWhy) {
  Bytes bytes = bytes_of(StepPlan{.page_start = {0}});
  EXPECT_EQ(refusal(bytes), "");
  EXPECT_THAT(refusal(bytes_of(StepResult{})), HasSubstr("of kind 2"));
  Bytes other = bytes;
  other[4] = std::byte{9};
  EXPECT_THAT(refusal(other), HasSubstr("version 9, this build 6"));
  other = bytes;
  other[0] ^= std::byte{1};
  EXPECT_THAT(refusal(other), HasSubstr("begins with other bytes"));
  other = bytes;
  other[15] = std::byte{1};
  EXPECT_THAT(refusal(other), HasSubstr("are more than"));
  EXPECT_FALSE(wire_body(other));
  // The number of saves is the first thing behind the step.
  other = bytes;
  std::memset(other.data() + kWireHeader + 8, 0xff, 4);
  EXPECT_THAT(refusal(other), HasSubstr("a list is longer than the message (before byte 28)"));
}

// Parts that do not fit each other would be read out of bounds by whoever computes the step.
TEST(Wire, PlansWhosePartsDoNotFitAreRefused) {
  const StepPlan good{.spans = {{.slot = 1, .count = 3, .draft = 2, .sample = true}},
                      .tokens = {1, 2, 3},
                      .pages = {7},
                      .page_start = {0, 1},
                      .opened = {{.history = {1, 2}, .prompt_len = 2}}};
  // Numbers of the good plan's bytes are replaced, since no other plan is written.
  const Bytes bytes = bytes_of(good);
  const size_t span = kWireHeader + 8 + 4 + 4 + 4, slot = span + 8, begin = slot + 4,
               count = begin + 4, draft = count + 4, sample = draft + 4;
  const auto with = [&](size_t at, int32_t value, size_t size = 4) {
    Bytes other = bytes;
    std::memcpy(other.data() + at, &value, size);
    return refusal(other);
  };
  EXPECT_EQ(with(slot, 1), "");
  EXPECT_THAT(with(slot, -1), HasSubstr("rows or drafts"));
  EXPECT_THAT(with(begin, -1), HasSubstr("rows or drafts"));
  EXPECT_THAT(with(begin, std::numeric_limits<int>::max()), HasSubstr("rows or drafts"));
  EXPECT_THAT(with(count, 4), HasSubstr("another number of rows"));
  EXPECT_THAT(with(count, 0), HasSubstr("rows or drafts"));
  EXPECT_THAT(with(draft, 3), HasSubstr("rows or drafts"));
  EXPECT_THAT(with(draft, -1), HasSubstr("rows or drafts"));
  EXPECT_THAT(with(sample, 0, 1), HasSubstr("rows or drafts"));
  EXPECT_THAT(with(sample, 2, 1), HasSubstr("neither 0 nor 1"));
  const size_t pool = sample + 1 + 4 + 4, tokens = pool + 2 + 4 + 1;
  EXPECT_THAT(with(pool, 1, 1), HasSubstr("rows or drafts")) << "it samples, too";
  EXPECT_THAT(with(pool + 1, 1, 1), HasSubstr("rows or drafts")) << "logits of no last row";
  EXPECT_EQ(with(tokens - 1, 1, 1), "") << "behind drafts";
  EXPECT_THAT(with(tokens - 1, 2, 1), HasSubstr("neither 0 nor 1"));
  const size_t pages = tokens + 4 + 12, start = pages + 4 + 4;
  EXPECT_THAT(with(start + 4, 1), HasSubstr("page_start"));
  EXPECT_THAT(with(start + 8, 2), HasSubstr("page_start"));
  EXPECT_THAT(with(start + 8, -1), HasSubstr("page_start"));
  EXPECT_THAT(with(start, 1), testing::Not(""));
  Bytes other = bytes;
  // The plan ends with its prompt's length, an empty list of stop tokens, how it is pooled, and
  // whether tokens are drafted behind it, and without the host.
  const size_t rows = other.size() - 2 - 4 - 2, length = rows - 8;
  const int32_t longer = 3;
  std::memcpy(other.data() + length, &longer, sizeof longer);
  EXPECT_THAT(refusal(other), HasSubstr("not in its history"));
  EXPECT_EQ(with(rows, Pooling::kMean, 1), "");
  EXPECT_THAT(with(rows, Pooling::kMean + 1, 1), HasSubstr("way of pooling"));
  EXPECT_EQ(with(other.size() - 1, 1, 1), "");
  StepPlan prompt = good;
  prompt.spans[0].draft = 0;
  prompt.chained = true;
  EXPECT_DEATH(bytes_of(prompt), "more than to decode");
}

TEST(WireDeathTest, APlanThatDoesNotFitIsABugOfItsWriter) {
  EXPECT_DEATH(bytes_of(StepPlan{}), "page_start");
  EXPECT_DEATH(bytes_of(StepResult{.tokens = {{1}}}), "not of one length");
  StepResult result{.tokens = {{1}}, .drafts = {{}}, .logprobs = {{}}, .prompt_logprobs = {{}}};
  EXPECT_FALSE(bytes_of(result).empty());
  result.draft_logprobs.resize(2);
  EXPECT_DEATH(bytes_of(result), "not of one length");
}

}  // namespace
}  // namespace skiff

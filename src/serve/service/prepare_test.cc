// From a Request to tokens and resolved parameters, without an engine.
#include "serve/service/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/service/engine_testing.h"

namespace skiff::service {
namespace {

class Prepare : public testing::Test {
 protected:
  Result<Prepared> prepare(const Request& request) {
    return prepare_request(request, {.config = config_, .tokenizer = tokenizer_});
  }
  static Request of(std::string prompt) {
    Request request;
    request.input = std::move(prompt);
    request.add_special = false;
    return request;
  }
  std::string prompt_of(const Request& request) {
    const auto prepared = prepare(request);
    if (!prepared) return prepared.error().field;
    return std::string(prepared->prompt.begin(), prepared->prompt.end());
  }
  ServiceConfig config_ = echo_config();
  ByteTokenizer tokenizer_;
};

TEST_F(Prepare, TruncationKeepsTheEndUnlessItIsCut) {
  Request request = of("abcdef");
  request.truncate_prompt = 2;
  EXPECT_EQ(prompt_of(request), "ef");
  request.truncate_prompt = 100;
  EXPECT_EQ(prompt_of(request), "abcdef");
  request.truncate_prompt = 2;
  request.truncate_end = true;
  EXPECT_EQ(prompt_of(request), "ab");
  request = of(std::string(1000, 'x') + "y");
  EXPECT_EQ(prompt_of(request), "input_length");
  request.truncate_prompt = 600;
  EXPECT_EQ(prompt_of(request), "input_length");
  request.truncate_prompt = -1;
  EXPECT_EQ(prompt_of(request), std::string(510, 'x') + "y");
  request.stop.max_tokens = 12;
  EXPECT_EQ(prepare(request)->prompt.size(), 500u);
  EXPECT_EQ(prepare(request)->stop.max_tokens, 12);
  request.stop.max_tokens = 2147483647;
  EXPECT_EQ(prompt_of(request), std::string(510, 'x') + "y");
}

// A chat's reply has the log-probabilities of its prompt beside its choices, too.
TEST_F(Prepare, LogprobsOfAPromptCountOnceMoreThanChoices) {
  Request request = of("0123456789");
  request.params.prompt_logprobs = 4;
  for (const int n : {1, 3}) {
    request.n = n;
    config_.max_reply_logprobs = int64_t{10} * 5 * (n + 1);
    EXPECT_TRUE(prepare(request)) << n;
    --config_.max_reply_logprobs;
    const auto refused = prepare(request);
    ASSERT_FALSE(refused) << n;
    EXPECT_EQ(refused.error().field, "prompt_logprobs");
    EXPECT_THAT(refused.error().what, testing::HasSubstr(fmt::format("(n ({}) + 1) x 10", n)));
  }
}

TEST_F(Prepare, APromptThatFitsIsNotTruncated) {
  for (const int most : {0, 1, 12, 511, 512, 2147483647})
    for (const size_t size : {1u, 400u, 511u}) {
      Request request = of(std::string(size, 'x'));
      request.truncate_prompt = -1;
      request.stop.max_tokens = most;
      EXPECT_EQ(prompt_of(request).size(), size) << most;
    }
}

TEST_F(Prepare, AReferenceIsReadWhereTokensAreDrafted) {
  Request request = of("ab");
  request.reference = "x<s>";
  EXPECT_TRUE(prepare(request)->reference.empty()) << "nothing is drafted";
  config_.drafts = 5;
  EXPECT_THAT(prepare(request)->reference.all(), testing::ElementsAre('x', '<', 's', '>'));
  request.reference = std::string(512, 'x');
  EXPECT_EQ(prepare(request)->reference.size(), 512u);
  for (const size_t size : {513u, 1u << 20}) {
    request.reference = std::string(size, 'x');
    const auto refused = prepare(request);
    ASSERT_FALSE(refused) << size;
    EXPECT_EQ(refused.error().field, "prediction");
    EXPECT_THAT(refused.error().what, testing::HasSubstr("more than the context of 512 tokens"));
  }
}

TEST_F(Prepare, ABegunReplyFollowsThePrompt) {
  Request request = of("ab");
  request.begun = {'c', 'd'};
  EXPECT_EQ(prompt_of(request), "abcd");
  request.input = std::vector<Token>{'x'};
  EXPECT_EQ(prompt_of(request), "xcd");
  request.begun = {258};
  EXPECT_EQ(prompt_of(request), "completion_token_ids");
}

// Each of thousands of prompts gets the begun reply, so neither it nor what is cut off may be
// large.
TEST_F(Prepare, ABegunReplyFitsTheContext) {
  Request request = of("ab");
  request.truncate_prompt = 1;
  request.begun.assign(513, 'c');
  EXPECT_EQ(prompt_of(request), "completion_token_ids");
  request.begun.resize(512);
  const auto prepared = prepare(request);
  ASSERT_TRUE(prepared);
  EXPECT_EQ(prepared->prompt.size(), 1u);
  EXPECT_LT(prepared->prompt.capacity(), 100u);
}

TEST_F(Prepare, Item29PromptsWithoutTokensAreRefused) {
  EXPECT_EQ(prompt_of(of("")), "input");
  Request request = of("");
  request.add_special = true;
  EXPECT_EQ(prepare(request)->prompt, std::vector<Token>{ByteTokenizer::kBos});
  request.input = std::vector<Token>{};
  EXPECT_EQ(prompt_of(request), "input");
  request.input = std::vector<Token>{ByteTokenizer::kEos, ByteTokenizer::kBos};
  EXPECT_EQ(prepare(request)->prompt.size(), 2u);
  for (Token bad : {-1, 258, 2147483647}) {
    request.input = std::vector<Token>{1, bad};
    const auto refused = prepare(request);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().what, testing::HasSubstr(fmt::format("token id {}", bad)));
  }
}

TEST_F(Prepare, MinTokensMustFit) {
  Request request = of("ab");
  request.params.min_tokens = 510;
  EXPECT_EQ(prepare(request)->params.min_tokens, 510);
  request.params.min_tokens = 511;
  EXPECT_EQ(prepare(request).error().what,
            "Input text is too long, input_ids_len (2) + min_tokens(511) >= max_model_len(512)");
  request.params.min_tokens = 5;
  request.stop.max_tokens = 4;
  EXPECT_EQ(prompt_of(request), "min_tokens");
}

TEST_F(Prepare, StopsAreBounded) {
  Request request = of("ab");
  request.stop_strings.assign(64, std::string(1024, 's'));
  EXPECT_TRUE(prepare(request));
  request.stop_strings.emplace_back("t");
  EXPECT_EQ(prepare(request).error().what,
            "Length of stop (65) exceeds the limit max_stop_seqs_num(64).");
  request.stop_strings = {std::string(1025, 's')};
  EXPECT_EQ(prompt_of(request), "stop");
}

TEST_F(Prepare, DisabledLogprobsSaySo) {
  Request request = of("ab");
  request.params.logprobs = 0;
  EXPECT_TRUE(prepare(request));
  config_.max_logprobs = 0;
  EXPECT_EQ(prepare(request).error().what,
            "Logprobs is disabled, please enable it in startup config.");
  request.params.logprobs = kNoLogprobs;
  EXPECT_TRUE(prepare(request));
}

TEST_F(Prepare, LogprobsOfDraftsNeedAServerThatHasThem) {
  Request request = of("ab");
  request.params.draft_logprobs = true;
  request.params.logprobs = 4;
  config_.draft_logprobs = false;
  EXPECT_EQ(prompt_of(request), "include_draft_logprobs");
  EXPECT_THAT(prepare(request).error().what, testing::HasSubstr("enable_draft_logprob"));
  config_.draft_logprobs = true;
  EXPECT_TRUE(prepare(request));
  request.params.logprobs = kNoLogprobs;
  EXPECT_EQ(prompt_of(request), "include_draft_logprobs") << "they are as many as logprobs";
  // They count like those of the reply.
  request.params.logprobs = 4;
  request.stop.max_tokens = 10;
  config_.max_reply_logprobs = 2 * 10 * 5;
  EXPECT_TRUE(prepare(request));
  --config_.max_reply_logprobs;
  EXPECT_EQ(prompt_of(request), "logprobs");
  EXPECT_THAT(prepare(request).error().what, testing::HasSubstr("x 2 (include_draft_logprobs)"));
}

TEST_F(Prepare, TheBoundsOfNumbersAreAllowed) {
  for (const float repetition : {1e-6f, 1e6f}) {
    Request request = of("ab");
    request.params.repetition = repetition;
    EXPECT_TRUE(prepare(request)) << repetition;
  }
  for (const float repetition : {0.9e-6f, 1.1e6f, NAN}) {
    Request request = of("ab");
    request.params.repetition = repetition;
    EXPECT_EQ(prompt_of(request), "repetition_penalty") << repetition;
  }
}

TEST_F(Prepare, NearlyGreedyIsGreedyAndTopKIsAVocabulary) {
  Request request = of("ab");
  request.params.temperature = 1e-7f;
  request.params.top_k = 2147483647;
  EXPECT_EQ(prepare(request)->params.temperature, 0);
  EXPECT_EQ(prepare(request)->params.top_k, 258);
}

// The documented bound, which no float equals.
TEST_F(Prepare, TheSmallestRepetitionPenaltyIsAccepted) {
  Request request = of("ab");
  request.params.repetition = 1e-6f;
  EXPECT_TRUE(prepare(request));
  request.params.repetition = 0.9e-6f;
  EXPECT_EQ(prompt_of(request), "repetition_penalty");
}

// Counts are bounded before they are multiplied.
TEST_F(Prepare, Item28And36CountsAreCapped) {
  Request request = of("ab");
  for (int n : {0, -1, Service::kMaxN + 1, 2147483647}) {
    request.n = n;
    EXPECT_EQ(prompt_of(request), "n");
  }
  request.n = Service::kMaxN;
  request.params.logit_bias = std::vector<std::pair<Token, float>>(258, {1, 1.f});
  EXPECT_TRUE(prepare(request));
  request.params.logit_bias = std::vector<std::pair<Token, float>>(259, {1, 1.f});
  EXPECT_EQ(prompt_of(request), "logit_bias");
}

}  // namespace
}  // namespace skiff::service

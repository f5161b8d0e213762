#include "serve/paddle/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skiff::paddle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<PaddleCall> read(const char* body, const PaddleConfig& config = {}) {
  return parse_paddle_call(*parse_ordered_json(body), "from-carrier", config);
}

PaddleCall good(const char* body, const PaddleConfig& config = {}) {
  auto call = read(body, config);
  EXPECT_TRUE(call) << call.error().what;
  return call ? std::move(*call) : PaddleCall{};
}

std::string bad(const char* body, const PaddleConfig& config = {}) {
  const auto call = read(body, config);
  EXPECT_FALSE(call) << body;
  return call ? "" : call.error().what;
}

OrderedJson messages_of(const PaddleCall& call) {
  return std::get<text::Conversation>(call.request.input).messages;
}

TEST(PaddleRequest, DefaultsAreThoseOfPaddleNlp) {
  const PaddleCall call = good(R"({"text": "hello"})");
  EXPECT_EQ(call.req_id, "from-carrier");
  EXPECT_FLOAT_EQ(call.request.params.temperature, 0.95F);
  EXPECT_FLOAT_EQ(call.request.params.top_p, 0.7F);
  EXPECT_EQ(call.request.params.min_tokens, 1);
  EXPECT_EQ(call.request.params.repetition, 1);
  EXPECT_EQ(call.request.stop.max_tokens, 0);
  EXPECT_EQ(call.token_seconds, 300);
  EXPECT_FALSE(call.stream || call.return_usage || call.return_all_tokens || call.benchmark);
  EXPECT_EQ(good(R"({"text": "hello"})", {.max_dec_len = 9}).request.stop.max_tokens, 9);
}

TEST(PaddleRequest, EveryFieldArrives) {
  const PaddleCall call = good(
      R"({"req_id": "r", "text": "t", "max_dec_len": 7, "min_dec_len": 2, "topp": 0.5,
          "temperature": 0, "penalty_score": 1.5, "frequency_score": 0.25, "presence_score": -0.5,
          "infer_seed": 12, "eos_token_ids": [5], "stop_sequences": ["x", "y"],
          "return_all_tokens": true, "return_usage": 1, "benchmark": true, "stream": true,
          "timeout": 4, "enable_text_truncate": 1, "response_type": "fastdeploy", "model": "m",
          "nonsense": 1, "seq_len": null})");
  EXPECT_EQ(call.req_id, "r");
  EXPECT_EQ(call.request.stop.max_tokens, 7);
  EXPECT_EQ(call.request.params.min_tokens, 2);
  EXPECT_FLOAT_EQ(call.request.params.top_p, 0.5F);
  EXPECT_EQ(call.request.params.temperature, 0);
  EXPECT_FLOAT_EQ(call.request.params.repetition, 1.5F);
  EXPECT_FLOAT_EQ(call.request.params.frequency, 0.25F);
  EXPECT_FLOAT_EQ(call.request.params.presence, -0.5F);
  EXPECT_TRUE(call.request.seed_given);
  EXPECT_EQ(call.request.params.seed, 12U);
  EXPECT_THAT(call.request.stop.tokens.all(), ElementsAre(5));
  EXPECT_THAT(call.request.stop_strings, ElementsAre("x", "y"));
  EXPECT_TRUE(call.return_all_tokens && call.return_usage && call.benchmark && call.stream);
  EXPECT_EQ(call.token_seconds, 4);
  EXPECT_EQ(call.request.truncate_prompt, -1);
  EXPECT_EQ(call.model, "m");
  EXPECT_THAT(call.unknown_fields, ElementsAre("nonsense"));
}

TEST(PaddleRequest, OtherNames) {
  const PaddleCall call = good(
      R"({"prompt": "t", "max_tokens": 7, "top_p": 0.25, "seed": -3, "stop": "x",
          "frequency_penalty": 1, "presence_penalty": 2, "eos_token_ids": 9})");
  EXPECT_EQ(call.request.stop.max_tokens, 7);
  EXPECT_FLOAT_EQ(call.request.params.top_p, 0.25F);
  EXPECT_EQ(static_cast<int64_t>(call.request.params.seed), -3);
  EXPECT_THAT(call.request.stop_strings, ElementsAre("x"));
  EXPECT_EQ(call.request.params.frequency, 1);
  EXPECT_EQ(call.request.params.presence, 2);
  EXPECT_THAT(call.request.stop.tokens.all(), ElementsAre(9));
  EXPECT_EQ(good(R"({"text": "t", "seq_len": 3, "max_tokens": 5})").request.stop.max_tokens, 3);
  EXPECT_EQ(good(R"({"text": "t", "seq_len": 3, "max_dec_len": 5})").request.stop.max_tokens, 5);
  EXPECT_TRUE(good(R"({"text": "t", "eos_token_ids": [null]})").request.stop.tokens.empty());
}

TEST(PaddleRequest, InputsAndTheirPrecedence) {
  EXPECT_EQ(messages_of(good(R"({"text": "a", "system": "s"})")).dump(),
            R"([{"role":"system","content":"s"},{"role":"user","content":"a"}])");
  EXPECT_EQ(std::get<std::string>(good(R"({"text": "a"})", {.chat_template = false}).request.input),
            "a");
  EXPECT_THAT(
      std::get<std::vector<Token>>(good(R"({"input_ids": [3, 4], "text": "a"})").request.input),
      ElementsAre(3, 4));
  EXPECT_EQ(messages_of(good(R"({"input_ids": [], "text": "a"})")).size(), 1U);
  const char* chat = R"({"system": "no", "messages": [{"role": "system", "content": "yes"},
                                                      {"role": "user", "content": "b"}]})";
  EXPECT_EQ(messages_of(good(chat)).dump(),
            R"([{"role":"system","content":"yes"},{"role":"user","content":"b"}])");
  EXPECT_EQ(bad(chat, {.chat_template = false}), "This model does not support chat_template.");
}

TEST(PaddleRequest, RefusalsInTheWordsOfPaddleNlp) {
  const std::pair<const char*, const char*> cases[] = {
      {"{}", "The input parameters should contain either `text`, `input_ids` or `messages`"},
      {R"({"text": 3})", "The `text` in input parameters must be a string"},
      {R"({"text": ""})", "The `text` in input parameters cannot be empty"},
      {R"({"text": "a", "system": 1})", "The `system` in input parameters must be a string"},
      {R"({"input_ids": "1"})", "The `input_ids` in input parameters must be a list"},
      {R"({"messages": [{"role": "user"}]})", "The item in messages must include `content`"},
      {R"({"text": "a", "min_dec_len": 0})",
       "The `min_dec_len` must be an integer and greater than 0"},
      {R"({"text": "a", "max_dec_len": "5"})",
       "The `max_dec_len` must be an integer and greater than 0"},
      {R"({"text": "a", "topp": 0.1, "top_p": 0.1})",
       "Only one of ('topp', 'top_p') should be set"},
      {R"({"text": "a", "topp": 1.5})", "The `topp` must be in [0, 1]"},
      {R"({"text": "a", "temperature": -1})", "The `temperature` must be >= 0"},
      {R"({"text": "a", "eos_token_ids": "x"})", "The `eos_token_ids` must be an list"},
      {R"({"text": "a", "eos_token_ids": [1, 2]})",
       "The length of `eos_token_ids` must be 1 if you set it"},
      {R"({"text": "a", "infer_seed": 1, "seed": 1})",
       "Only one of ('infer_seed', 'seed') should be set"},
      {R"({"text": "a", "stream": "yes"})", "The `stream` must be a boolean"},
      {R"({"text": "a", "response_type": "x"})",
       "The `response_type` must be either `fastdeploy` or `openai`."},
      {R"({"text": "a", "min_dec_len": 5, "max_dec_len": 4})",
       "The `min_dec_len` (5) must not exceed the `max_dec_len` (4)"},
  };
  for (const auto& [body, message] : cases) EXPECT_EQ(bad(body), message) << body;
  EXPECT_EQ(bad(R"({"text": "a", "max_dec_len": 11})", {.max_dec_len = 10}),
            "The parameter max_dec_len(11) exceeds the limit MAX_DEC_LEN(10).");
  EXPECT_THAT(bad(R"({"text": "a", "response_type": "openai"})"), HasSubstr("not supported"));
  EXPECT_THAT(bad(R"({"text": "a", "penalty_score": 0})"), HasSubstr("`penalty_score`"));
  EXPECT_THAT(bad(R"({"req_id": 3, "text": "a"})"), HasSubstr("`req_id`"));
  EXPECT_THAT(bad(R"([])"), HasSubstr("JSON object"));
  EXPECT_EQ(bad(R"({"text": "", "topp": 2})"),
            "The `text` in input parameters cannot be empty; The `topp` must be in [0, 1]");
}

TEST(PaddleRequest, IsToldFromOpenAiByItsOwnFields) {
  const auto claimed = [](const char* body) {
    return is_paddle_request(*parse_ordered_json(body));
  };
  EXPECT_FALSE(claimed(R"({"messages": [], "max_tokens": 3, "stream": true, "seed": 1})"));
  EXPECT_FALSE(claimed(R"({"prompt": "a", "stop": "b", "top_p": 1, "model": "m"})"));
  EXPECT_FALSE(claimed(R"({"prompt": "a", "text": null})"));
  EXPECT_FALSE(claimed("[1]"));
  for (const char* body : {R"({"text": "a"})", R"({"messages": [], "req_id": "r"})",
                           R"({"messages": [], "max_dec_len": 3})", R"({"input_ids": [1]})"})
    EXPECT_TRUE(claimed(body)) << body;
}

}  // namespace
}  // namespace skiff::paddle

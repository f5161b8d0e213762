#include "serve/pooling/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/pooling/route.h"
#include "serve/service/engine_testing.h"
#include "serve/service/pooled_batch.h"

namespace skiff::pooling {
namespace {

using service::PooledModel;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// A tokenizer that puts a token before and one after a text.
class FramedTokenizer : public service::ByteTokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text,
                              const text::EncodeOptions& options) const override {
    std::vector<int32_t> out = ByteTokenizer::encode(text, options);
    if (options.add_special) out.push_back(kEos);
    return out;
  }
};

std::string text_of(const std::vector<Token>& tokens) {
  return service::ByteTokenizer().decode(tokens, false);
}

TEST(PoolingPrompts, ACutTextKeepsItsFrame) {
  const FramedTokenizer tokenizer;
  EXPECT_EQ(text_of(cut_text(tokenizer, "abcdef", true, 100)), "<s>abcdef</s>");
  EXPECT_EQ(text_of(cut_text(tokenizer, "abcdef", true, 5)), "<s>abc</s>");
  EXPECT_EQ(text_of(cut_text(tokenizer, "abcdef", false, 5)), "abcde");
  EXPECT_EQ(cut_text(tokenizer, "abcdef", true, 2).size(), 2u) << "no room for the text";
}

PoolingCall call_of(const RouteKind& kind, const char* body) {
  auto call = parse_call(*parse_ordered_json(body), kind);
  EXPECT_TRUE(call) << call.error().what;
  return std::move(*call);
}

TEST(PoolingPrompts, TextsOfClientsCannotSpellTokensOfTheQuestion) {
  service::EchoService echo;
  const PooledModel model{.task = PooledModel::kClassify, .judges_pairs = true};
  PoolingCall call = call_of(rerank_route(), R"({"query": "q</s>", "documents": ["</s>", "d"]})");
  const auto prompts = prompts_of(call, model, echo.service);
  ASSERT_TRUE(prompts);
  ASSERT_EQ(prompts->size(), 2u);
  const auto& tokens = std::get<std::vector<Token>>(prompts->front());
  EXPECT_EQ(std::ranges::count(tokens, service::ByteTokenizer::kEos), 0);
  EXPECT_THAT(text_of(tokens), StartsWith("<|im_start|>system\nJudge whether"));
  EXPECT_THAT(text_of(tokens), HasSubstr("<Query>: q</s>\n<Document>: </s><|im_end|>"));
}

// Counts the bytes that are tokenized.
class CountingTokenizer : public service::ByteTokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text,
                              const text::EncodeOptions& options) const override {
    bytes_ += text.size();
    return ByteTokenizer::encode(text, options);
  }
  size_t bytes() const { return bytes_; }

 private:
  mutable size_t bytes_ = 0;
};

struct CountingService {
  std::shared_ptr<service::EventQueue> events = std::make_shared<service::EventQueue>();
  service::EchoEngine engine{events};
  std::shared_ptr<CountingTokenizer> tokenizer = std::make_shared<CountingTokenizer>();
  service::EngineService service{service::echo_config(), engine, events, tokenizer,
                                 std::make_shared<service::PlainTemplate>()};
};

std::string pairs_with(size_t query_bytes, const char* more) {
  return fmt::format(R"({{"query": "{}", "documents": ["a", "b", "c", "d", "e", "f"]{}}})",
                     std::string(query_bytes, 'q'), more);
}

// The work for a call is bounded by its bytes, however many documents share a query.
TEST(PoolingPrompts, ALongQueryIsNotReadForEachDocument) {
  constexpr size_t kQuery = 10'000;  // the context has 512 tokens
  CountingService counting;
  for (const bool judges : {false, true}) {
    const PooledModel model{.task = PooledModel::kClassify, .width = 1, .judges_pairs = judges};
    PoolingCall whole = call_of(rerank_route(), pairs_with(kQuery, "").c_str());
    size_t before = counting.tokenizer->bytes();
    const auto refused = prompts_of(whole, model, counting.service);
    ASSERT_FALSE(refused) << judges;
    EXPECT_EQ(refused.error().field, "input_length");
    EXPECT_LT(counting.tokenizer->bytes() - before, 2 * kQuery) << judges;

    PoolingCall cut =
        call_of(rerank_route(), pairs_with(kQuery, R"(, "truncate_prompt_tokens": 9)").c_str());
    before = counting.tokenizer->bytes();
    const auto prompts = prompts_of(cut, model, counting.service);
    EXPECT_LT(counting.tokenizer->bytes() - before, 3 * kQuery) << judges;
    EXPECT_EQ(static_cast<bool>(prompts), !judges) << "a judge's question would be cut";
    if (!prompts) continue;
    ASSERT_EQ(prompts->size(), 6u);
    EXPECT_EQ(text_of(std::get<std::vector<Token>>(prompts->back())), "<s>qqqqqqqq");
  }
}

TEST(PoolingPrompts, EmbeddingsOfPairsShareTheirQuery) {
  service::EchoService echo;
  PoolingCall call = call_of(rerank_route(), R"({"query": "q", "documents": ["a", "b"]})");
  const auto prompts = prompts_of(call, {.task = PooledModel::kEmbed}, echo.service);
  ASSERT_TRUE(prompts);
  std::vector<std::string> texts;
  for (const auto& prompt : *prompts) texts.push_back(std::get<std::string>(prompt));
  EXPECT_THAT(texts, ElementsAre("q", "a", "b"));
  EXPECT_THAT(call.documents, ElementsAre("a", "b")) << "the reply repeats them";
}

TEST(PoolingPrompts, AModelThatGeneratesEmbedsNothing) {
  service::EchoService echo;
  const auto refused = service::embed(echo.service, {}, {std::string("a")});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().what, HasSubstr("--convert embed"));
}

TEST(PoolingCalls, FieldsAreCheckedByName) {
  const auto field_of = [](const RouteKind& kind, const char* body) {
    const auto call = parse_call(*parse_ordered_json(body), kind);
    return call ? std::string("none") : call.error().field;
  };
  EXPECT_EQ(field_of(embeddings_route(), R"({"input": "a", "encoding_format": "x"})"),
            "encoding_format");
  EXPECT_EQ(field_of(embeddings_route(), R"([])"), "");
  EXPECT_EQ(field_of(score_route(), R"({"text_1": "a", "documents": "b"})"), "queries");
  EXPECT_EQ(field_of(score_route(), R"({"queries": "a", "items": "b", "documents": "c"})"),
            "items");
  const PoolingCall call =
      call_of(embeddings_route(), R"({"input": [1, 2], "what": 1, "user": "me", "model": null})");
  EXPECT_THAT(call.unknown_fields, ElementsAre("what"));
  EXPECT_TRUE(call.request.pool);
}

}  // namespace
}  // namespace skiff::pooling

#include "serve/ollama/embed.h"

#include <gtest/gtest.h>

namespace skiff::ollama {
namespace {

Result<pooling::PoolingCall> parsed(const char* body, const pooling::RouteKind& kind) {
  return pooling::parse_call(OrderedJson::parse(body), kind);
}

const service::PooledModel kModel{.width = 2, .normalize = false};

TEST(OllamaEmbed, ReadsTextsAndCutsThemUnlessToldNotTo) {
  const auto call = parsed(
      R"({"model": "m:latest", "input": ["a", "b"], "dimensions": 3, "keep_alive": "5m",
          "options": {"num_ctx": 4}})",
      embed_kind());
  ASSERT_TRUE(call);
  EXPECT_EQ(call->model, "m");
  EXPECT_EQ(call->inputs.size(), 2u);
  EXPECT_EQ(call->dimensions, 3);
  EXPECT_EQ(call->truncate, -1);
  EXPECT_EQ(call->normalize, true);
  EXPECT_TRUE(call->unknown_fields.empty());
  EXPECT_FALSE(parsed(R"({"input": "a", "truncate": false})", embed_kind())->truncate);
  const auto older = parsed(R"({"name": "m", "prompt": "a"})", embedding_kind());
  ASSERT_TRUE(older);
  EXPECT_EQ(older->model, "m");
  EXPECT_EQ(older->inputs.size(), 1u);
  EXPECT_FALSE(older->normalize);
}

TEST(OllamaEmbed, RefusesByName) {
  EXPECT_EQ(parsed(R"({"input": []})", embed_kind()).error().field, "input");
  EXPECT_EQ(parsed(R"({})", embed_kind()).error().field, "input");
  EXPECT_EQ(parsed(R"({"input": "a", "truncate": 1})", embed_kind()).error().field, "truncate");
  EXPECT_EQ(parsed(R"({})", embedding_kind()).error().field, "prompt");
  EXPECT_EQ(parsed(R"({"prompt": ["a"]})", embedding_kind()).error().field, "prompt");
  const http::HttpResponse refusal = embed_kind().refusal(http::api_error(400, "why"));
  EXPECT_EQ(Json::parse(refusal.body), Json({{"error", "why"}}));
}

TEST(OllamaEmbed, WritesBothForms) {
  const pooling::Answer answer{.vectors = {{3, 4}, {0, 2}}, .scores = {}, .usage = {.prompt = 7}};
  std::string text;
  const auto call = parsed(R"({"input": ["a", "b"]})", embed_kind());
  embed_kind().write(*call, answer, kModel, {.id = "i", .model = "m"}, text);
  const Json both = Json::parse(text);
  EXPECT_EQ(both["model"], "m");
  EXPECT_EQ(both["embeddings"].size(), 2u);
  EXPECT_NEAR(both["embeddings"][0][1].get<double>(), 0.8, 1e-6);
  EXPECT_EQ(both["prompt_eval_count"], 7);
  EXPECT_GT(both["total_duration"], 0);
  text.clear();
  const auto older = parsed(R"({"prompt": "a"})", embedding_kind());
  embedding_kind().write(*older, answer, kModel, {.id = "i", .model = "m"}, text);
  EXPECT_EQ(Json::parse(text)["embedding"], Json::parse("[3, 4]"));
}

}  // namespace
}  // namespace skiff::ollama

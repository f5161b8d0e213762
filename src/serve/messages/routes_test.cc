// POST /v1/messages over real sockets, on an engine that repeats its prompt.
#include "serve/messages/routes.h"

#include <gtest/gtest.h>

#include "serve/messages/writer.h"
#include "serve/openai/server_testing.h"

namespace skiff::messages {
namespace {

class MessagesRoutes : public testing::Test {
 protected:
  http::ClientResponse post(Json body, const char* path = "/v1/messages") {
    body["max_tokens"] = 3;
    if (!body.contains("messages")) body["messages"] = {{{"role", "user"}, {"content", "hi"}}};
    return http::post_once(server_.port(), path, body);
  }
  openai::TestServer server_;
};

TEST_F(MessagesRoutes, EveryReplyHasTheIdUnderAnthropicsName) {
  for (const auto& response :
       {post({}), post({{"stream", true}}), post({{"max_tokens", 3}, {"messages", 5}}),
        post({{"model", "nope"}}), post({}, "/v1/messages/count_tokens")})
    EXPECT_EQ(response.headers.at("request-id"), response.headers.at("x-request-id"));
  EXPECT_FALSE(server_.chat({}).headers.contains("request-id"));
}

TEST_F(MessagesRoutes, FieldsOfAChatCountOrAreRefused) {
  const Json named = post({{"request_id", "mine"}}).json();
  EXPECT_EQ(named["id"], "msg_mine");
  for (const auto& [field, value] : {std::pair<const char*, Json>{"logprobs", true},
                                     {"prompt_logprobs", 1},
                                     {"return_token_ids", true},
                                     {"return_tokens_as_token_ids", true},
                                     {"max_streaming_response_tokens", 2}}) {
    const auto response = post({{field, value}});
    EXPECT_EQ(response.status, 400) << field;
    EXPECT_NE(response.body.find(field), std::string::npos) << response.body;
  }
  EXPECT_EQ(post({{"max_streaming_response_tokens", 1}, {"return_token_ids", false}}).status, 200);
}

service::Reply thought() {
  service::Reply reply;
  reply.parts = {{.part = answer::Part::kReasoning, .text = "hm"},
                 {.part = answer::Part::kContent, .text = "so"}};
  reply.finish = Finish::kStop;
  return reply;
}

TEST(MessagesWriter, OmittedThinkingIsAnEmptyBlock) {
  const auto writer = [](const char* body) {
    const OrderedJson json = OrderedJson::parse(body);
    return make_writer({}, {.json = json, .counted = nullptr});
  };
  const char* omitted = R"({"thinking": {"type": "enabled", "display": "omitted"}})";
  const Json whole = Json::parse(writer(omitted)->whole(thought()));
  EXPECT_EQ(whole["content"][0]["type"], "thinking");
  EXPECT_EQ(whole["content"][0]["thinking"], "");
  EXPECT_EQ(whole["content"][1]["text"], "so");
  const std::string events = writer(omitted)->piece(thought());
  EXPECT_EQ(events.find("thinking_delta"), std::string::npos);
  EXPECT_NE(events.find("signature_delta"), std::string::npos);
  const char* shown = R"({"thinking": {"type": "enabled", "display": "summarized"}})";
  EXPECT_EQ(Json::parse(writer(shown)->whole(thought()))["content"][0]["thinking"], "hm");
}

}  // namespace
}  // namespace skiff::messages

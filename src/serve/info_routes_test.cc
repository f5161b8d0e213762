// What the server says about itself: models, health, metrics, load, configuration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/openai/server_testing.h"

namespace skiff::serve {
namespace {

TEST(InfoRoutes, ModelsAreListed) {
  openai::TestServer server;
  http::TestClient client(server.port());
  const Json list = client.call("GET", "/v1/models").json();
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["id"], "echo");
  EXPECT_EQ(list["data"][0]["max_model_len"], 512);
  EXPECT_EQ(client.call("GET", "/v1/models/echo-alias").json()["id"], "echo-alias");
  const auto missing = client.call("GET", "/v1/models/nope");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.json()["error"]["code"], "model_not_found");
  EXPECT_EQ(client.call("GET", "/v1/models/%00").status, 400);
}

TEST(InfoRoutes, Probes) {
  openai::TestServer server;
  http::TestClient client(server.port());
  EXPECT_EQ(client.call("GET", "/health").status, 200);
  EXPECT_EQ(client.call("HEAD", "/health").status, 200);
  EXPECT_EQ(client.call("POST", "/ping", "", "Content-Length: 0\r\n").status, 200);
  EXPECT_EQ(client.call("GET", "/version").json()["version"], "0.1.0");
  EXPECT_EQ(client.call("GET", "/load").json()["server_load"], 0);
  server.echo.engine.stuck_ = 31;
  EXPECT_EQ(client.call("GET", "/health").status, 503);
  const auto wrong = client.call("GET", "/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST");
  EXPECT_EQ(wrong.json()["error"]["code"], "method_not_allowed");
  EXPECT_EQ(client.call("GET", "//v1/models").status, 404);
  EXPECT_EQ(client.call("GET", "/nope").json()["error"]["code"], "route_not_found");
}

TEST(InfoRoutes, MetricsCount) {
  openai::TestServer server;
  ASSERT_EQ(server.complete({{"prompt", "abcd"}, {"n", 2}, {"temperature", 0}}).status, 200);
  const auto response = http::TestClient(server.port()).call("GET", "/metrics");
  EXPECT_THAT(response.headers.at("content-type"), testing::HasSubstr("version=0.0.4"));
  for (const char* line :
       {"fastdeploy:requests_number{model_name=\"echo\"} 1\n",
        "fastdeploy:request_success_total{finished_reason=\"stop\",model_name=\"echo\"} 2\n",
        "vllm:request_success_total{finished_reason=\"stop\",model_name=\"echo\",engine=\"0\"} 2\n",
        "fastdeploy:prompt_tokens_total{model_name=\"echo\"} 10\n",
        "fastdeploy:generation_tokens_total{model_name=\"echo\"} 10\n",
        "fastdeploy:time_to_first_token_seconds_count{model_name=\"echo\"} 2\n",
        "fastdeploy:time_per_output_token_seconds_count{model_name=\"echo\"} 8\n",
        "fastdeploy:e2e_request_latency_seconds_count{model_name=\"echo\"} 1\n",
        "fastdeploy:num_requests_running{model_name=\"echo\"} 0\n",
        "fastdeploy:available_gpu_block_num{model_name=\"echo\"} 100\n",
        "# TYPE fastdeploy:time_to_first_token_seconds histogram\n",
        "# TYPE fastdeploy:request_success_total counter\n"})
    EXPECT_THAT(response.body, testing::HasSubstr(line));
}

TEST(InfoRoutes, OneModelIsListedOnce) {
  ServerConfig config = openai::local_config();
  config.model_names = {"echo", config.model_path};
  openai::TestServer server(config);
  http::TestClient client(server.port());
  const Json list = client.call("GET", "/v1/models").json()["data"];
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["id"], "echo");
  EXPECT_EQ(list[0]["root"], config.model_path);
  EXPECT_TRUE(list[0]["parent"].is_null());
  EXPECT_EQ(list[0]["permission"][0]["object"], "model_permission");
  EXPECT_EQ(server.complete({{"prompt", "ab"}, {"model", config.model_path}}).status, 200);
  EXPECT_EQ(client.call("GET", "/v1/models/" + config.model_path).status, 200);
}

TEST(InfoRoutes, LoadTellsTheRoutesOfV1) {
  openai::TestServer server;
  const Json load = http::TestClient(server.port()).call("GET", "/load").json();
  EXPECT_EQ(load["running"], 0);
  std::map<std::string, Json> methods;
  for (const Json& route : load["routes"]) {
    EXPECT_TRUE(route["tags"].is_array());
    methods[route["path"]] = route["methods"];
  }
  EXPECT_EQ(methods["/v1/chat/completions"], Json{"POST"});
  EXPECT_EQ(methods["/v1/models"], Json{"GET"});
  EXPECT_EQ(methods["/v1/tokenize"], Json{"POST"});
  EXPECT_FALSE(methods.contains("/health"));
}

TEST(InfoRoutes, ConfigurationIsToldAsItWasGiven) {
  ServerConfig config = openai::local_config();
  EXPECT_EQ(http::TestClient(openai::TestServer(config).port()).call("GET", "/config-info").body,
            "{}");
  config.config_info = {{"z", 1}, {"a", {{"b", "x"}}}};
  openai::TestServer server(config);
  const auto response = http::TestClient(server.port()).call("GET", "/config-info");
  EXPECT_EQ(response.body, R"({"z":1,"a":{"b":"x"}})");
  EXPECT_EQ(response.headers.at("content-type"), "application/json");
}

}  // namespace
}  // namespace skiff::serve

// serve/openai/server_testing.h -- a whole server on a free port, with an engine that repeats its
// prompt, for tests.
#pragma once
#include <string>

#include "serve/http/client_testing.h"
#include "serve/server.h"
#include "serve/service/engine_testing.h"

namespace skiff::openai {

inline serve::ServerConfig local_config() {
  serve::ServerConfig config;
  config.http.host = "127.0.0.1";
  config.http.port = 0;
  config.model_names = {"echo", "echo-alias"};
  config.model_path = "/models/echo";
  return config;
}

struct TestServer {
  explicit TestServer(serve::ServerConfig config = local_config())
      : server(std::move(config), echo.service) {
    server.start();
  }
  uint16_t port() const { return server.port(); }
  http::ClientResponse chat(Json body) {
    return http::post_once(port(), "/v1/chat/completions", with_messages(std::move(body)));
  }
  http::ClientResponse complete(const Json& body) {
    return http::post_once(port(), "/v1/completions", body);
  }
  static Json with_messages(Json body) {
    if (!body.contains("messages")) body["messages"] = {{{"role", "user"}, {"content", "hi"}}};
    if (!body.contains("temperature")) body["temperature"] = 0;
    return body;
  }
  service::EchoService echo;
  serve::Server server;
};

}  // namespace skiff::openai

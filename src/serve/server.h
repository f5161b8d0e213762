// serve/server.h -- the HTTP server of `skiff serve`: every protocol on one port, and its way down.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "serve/http_server.h"
#include "serve/service.h"

namespace skiff {

// What a client that names no value gets: generation_config.json, or the API's own defaults.
struct SamplingDefaults {
  float temperature = 1, top_p = 1, repetition = 1, min_p = 0;
  int top_k = 0;
};

struct ServerConfig {
  HttpConfig http;
  std::vector<std::string> model_names;  // the first is told to clients; not empty
  std::string model_path;                // "root" in /v1/models
  std::string version = "0.1.0";
  SamplingDefaults defaults;
  bool refuse_unknown_fields = false;  // 400 for a field that the API does not have
  int max_concurrency = 512;        // generation requests at a time; more are answered 429
  double stream_idle_seconds = 15;  // silence before a keep-alive comment in a stream
  std::vector<std::string> api_keys;      // any one opens every route; empty: none is asked for
  std::vector<std::string> cors_origins;  // "*" or exact origins; empty: no CORS headers
  OrderedJson config_info;                // what GET /config-info tells; holds no secret
};

class Server {
 public:
  // Binds; throws LoadError if it cannot. `service` must outlive the server.
  Server(ServerConfig config, Service& service);
  ~Server();  // stop()

  uint16_t port() const;
  // Begins to answer; returns at once.
  void start();
  // From now on /health says 503 and no connection is taken. Returns when every reply is complete,
  // when `seconds` have passed (what still runs is then cancelled), or after force().
  // True if nothing had to be cut off.
  bool drain(double seconds);
  // Makes a drain() under way return at once. Any thread.
  void force();
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skiff

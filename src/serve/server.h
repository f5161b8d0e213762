// serve/server.h -- the HTTP server of `skiff serve`: every protocol on one port, who may use it,
// and its way up and down. It listens before there is a model to serve:
//
//   Server(config)  port bound      start()  /live 200, everything else 503 "loading"
//   open(service)   all routes      drain()  /live 200, new work 503     stop()
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "serve/http/cors.h"
#include "serve/http/server.h"
#include "serve/service/request_policy.h"
#include "serve/service/service.h"

namespace skiff {

// What a client that names no value gets: generation_config.json, or the API's own defaults.
struct SamplingDefaults {
  float temperature = 1, top_p = 1, repetition = 1, min_p = 0;
  int top_k = 0;
  int max_tokens = 0;  // 0: what the context leaves
};

struct ServerConfig {
  HttpConfig http;
  std::vector<std::string> model_names;  // the first is told to clients; not empty
  std::string model_path;                // "root" in /v1/models
  std::string version = "0.1.0";
  SamplingDefaults defaults;
  int max_concurrency = 512;           // generation requests at a time; more are answered 429
  double stream_idle_seconds = 15;     // silence before a keep-alive comment in a stream
  bool refuse_unknown_fields = false;  // 400 for a field that the API does not have
  RequestPolicy policy;
  std::vector<std::string> api_keys;      // any one opens every route; empty: none is asked for
  std::vector<std::string> cors_origins;  // "*" or exact origins; empty: no CORS headers
  std::vector<std::string> cors_methods = {"*"}, cors_headers = {"*"};
  bool cors_credentials = false;           // not with the origin "*"
  std::vector<std::string> allowed_hosts;  // see serve/http/host_list.h
  bool access_log = true;                  // a line at level info for each request
  OrderedJson config_info;                 // what GET /config-info tells; holds no secret
};

class Server {
 public:
  // Binds; throws LoadError if it cannot, or if files or flags contradict each other.
  explicit Server(ServerConfig config);
  // The same for a service that is there already: open() is done.
  Server(ServerConfig config, Service& service);
  ~Server();  // stop()

  uint16_t port() const;
  // Begins to answer; returns at once.
  void start();
  // What /health tells while there is no service. Any thread.
  void set_loaded(double part);  // 0 .. 1
  // Puts all routes in the place of "loading", for every request from now on. Once. `service` must
  // outlive the server. `config_info`, unless null, replaces the one of the constructor.
  void open(Service& service, OrderedJson config_info = nullptr);
  // Takes these keys and reads the TLS files again, both or, if something is wrong with either,
  // neither. A server that has keys is not opened to everybody by an empty list. Any thread.
  Status reload(const std::vector<std::string>& api_keys);
  // From now on /health says 503 and new work is refused; /live still says 200. Returns when every
  // reply is complete, when `seconds` have passed (what still runs is then cancelled), or after
  // force(). True if nothing had to be cut off.
  bool drain(double seconds);
  // Makes a drain() under way return at once. Any thread.
  void force();
  // While the engine hangs /live and /health say 503. Any thread.
  void set_stalled(bool stalled);
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skiff

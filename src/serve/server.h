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
#include "base/result.h"
#include "serve/server_config.h"
#include "serve/service/service.h"

namespace skiff {

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

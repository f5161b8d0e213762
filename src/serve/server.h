// serve/server.h -- the HTTP server of `skiff serve`: all protocols on one port, access control,
// start-up and shutdown. It listens before there is a model to serve:
//
//   Server(config)  port bound      start()  /live 200, everything else 503 "loading"
//   open(service)   all routes      drain()  /live 200, new work 503     stop()
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "serve/queue/shared_queue.h"
#include "serve/server_config.h"
#include "serve/service/service.h"
#include "serve/service/upkeep.h"

namespace skiff::serve {

class Server {
 public:
  // Binds the port. Throws LoadError if that fails, or if files or flags contradict each other.
  explicit Server(ServerConfig config);
  // Binds the port and throws like the other constructor, for a service that exists already; calls
  // open().
  Server(ServerConfig config, service::Service& service);
  ~Server();  // calls stop()

  uint16_t port() const;
  std::vector<uint16_t> ports() const;  // those of ServerConfig::http, in its order
  uint16_t grpc_port() const;           // 0 without one
  // Begins to answer requests; returns at once.
  void start();
  // Progress of loading, which /health shows until open(). Any thread.
  void set_loaded(double part);  // 0 .. 1
  // Called before open(), if at all: requests are shared with other instances through this store.
  void share(queue::QueueConfig config, std::unique_ptr<queue::Store> store);
  // Serves all routes from now on. Called once. `service` must outlive the server. `config_info`,
  // unless null, replaces the one of the constructor. `upkeep` is what the operator's endpoints use
  // to give the model's memory back; null: they are refused. It must outlive the server, too.
  void open(service::Service& service, OrderedJson config_info = nullptr,
            service::Upkeep* upkeep = nullptr);
  // Replaces the keys and reads the TLS files again; if either fails, nothing changes. A server
  // that has keys of a kind refuses an empty list of them, which would open it to everybody. One
  // that was started without admin keys gets no control endpoints. Any thread.
  Status reload(const std::vector<std::string>& api_keys,
                const std::vector<std::string>& admin_keys = {});
  // From now on /health answers 503 and new work is refused; /live still answers 200. Returns when
  // every reply is complete and others_done(), where there is one, returns true; when `seconds`
  // have passed (the rest is then cancelled); or after force(). True if nothing was cut off.
  bool drain(double seconds, const std::function<bool()>& others_done = nullptr);
  // Makes a drain() in progress return at once. Any thread.
  void force();
  // While the engine is stalled, /live and /health answer 503. Any thread.
  void set_stalled(bool stalled);
  // The engine cannot go on and the process is about to end: refuses new work, ends the replies
  // under way with an error, and returns when the errors are sent, at the latest after `seconds`
  // unless a thread that hangs holds what a reply needs. Any thread.
  void fail(double seconds);
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skiff::serve

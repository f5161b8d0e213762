// serve/grpc/methods.h -- the table of remote calls. A new call is a new line in it.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "serve/grpc/exchange.h"

namespace skiff::grpc {

// What the handlers of one server share; outlives them.
struct Shared {
  explicit Shared(Backend given) : backend(std::move(given)) {}

  // Reports changes of the server's health to those who watch it. Called every second or so.
  void tick();
  bool serving() const { return backend.unready().empty(); }

  const Backend backend;
  std::atomic<int> open_requests{0};  // inferences whose answers are not complete
  std::mutex mutex;
  std::vector<std::weak_ptr<Exchange>> watchers;  // guarded by mutex
  std::vector<std::weak_ptr<Exchange>> waiting;   // for unknown services; guarded by mutex
  bool told = false;                              // guarded by mutex: what watchers know
};

using MakeHandler = std::unique_ptr<Handler> (*)(Shared& shared, Exchange& exchange);

struct Method {
  std::string_view path;  // "/package.Service/Method"
  http::Access access = http::Access::kKey;
  bool streams = false;  // the client may send more than one message
  MakeHandler make = nullptr;
};

// Null if there is none.
const Method* find_method(std::string_view path);

std::unique_ptr<Handler> server_live(Shared& shared, Exchange& exchange);
std::unique_ptr<Handler> server_ready(Shared& shared, Exchange& exchange);
std::unique_ptr<Handler> server_metadata_call(Shared& shared, Exchange& exchange);
std::unique_ptr<Handler> model_ready(Shared& shared, Exchange& exchange);
std::unique_ptr<Handler> model_metadata_call(Shared& shared, Exchange& exchange);
std::unique_ptr<Handler> model_config_call(Shared& shared, Exchange& exchange);
std::unique_ptr<Handler> model_infer(Shared& shared, Exchange& exchange);
std::unique_ptr<Handler> model_stream_infer(Shared& shared, Exchange& exchange);
std::unique_ptr<Handler> health_check(Shared& shared, Exchange& exchange);
std::unique_ptr<Handler> health_watch(Shared& shared, Exchange& exchange);

}  // namespace skiff::grpc

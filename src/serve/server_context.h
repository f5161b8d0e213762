// serve/server_context.h -- what the server's own routes (probes, metrics, configuration) answer
// from.
#pragma once
#include <atomic>
#include <memory>
#include <utility>

#include "serve/queue/shared_queue.h"
#include "serve/server_config.h"
#include "serve/service/protocol_context.h"

namespace skiff::serve {

struct ServerContext {
  ServerContext(ServerConfig config, std::shared_ptr<service::ProtocolContext> protocol)
      : config(std::move(config)), protocol(std::move(protocol)) {}

  const ServerConfig config;
  const std::shared_ptr<service::ProtocolContext> protocol;
  std::shared_ptr<queue::SharedQueue> queue;  // null: all requests are computed here
  std::atomic<bool> stalled{false};           // the engine hangs: it will not answer any more
};

}  // namespace skiff::serve

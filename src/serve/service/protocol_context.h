// serve/service/protocol_context.h -- what every protocol is given.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "serve/service/admit.h"
#include "serve/service/open_generations.h"
#include "serve/service/protocol_config.h"
#include "serve/service/service.h"

namespace skiff::service {

// Shared by all handlers, and by generations that an output thread may still hold when the server
// has gone; the service outlives both.
struct ProtocolContext : std::enable_shared_from_this<ProtocolContext> {
  ProtocolContext(ProtocolConfig config, Service& service, int64_t started)
      : config(std::move(config)),
        service(service),
        admission(this->config.max_concurrency, this->config.model_names, service),
        started(started) {}

  const ProtocolConfig config;
  Service& service;
  AdmissionControl admission;
  OpenGenerations generations;
  const int64_t started;  // Unix seconds
  // Runs a job, which must not throw, where no small request waits for it, or drops it as the
  // server stops. Empty: there is no such place. Set before there are handlers.
  std::function<void(std::function<void()> job)> aside;
};

}  // namespace skiff::service

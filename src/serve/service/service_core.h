// serve/service/service_core.h -- what the parts of the service over an engine share. Private to
// EngineService.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "serve/service/engine_port.h"
#include "serve/service/event_queue.h"
#include "serve/service/metrics.h"
#include "serve/service/request_observer.h"
#include "serve/service/request_table.h"
#include "serve/service/service_config.h"

namespace skiff::service {

// Each member may be used by any thread.
struct ServiceCore {
  ServiceCore(ServiceConfig config, EnginePort& engine, std::shared_ptr<EventQueue> events,
              std::shared_ptr<RequestObserver> observer)
      : config(std::move(config)),
        engine(engine),
        events(std::move(events)),
        observer(std::move(observer)),
        metrics(this->config.model_name, this->config.cache_info, this->config.drafts),
        table(this->config.admission) {}

  const ServiceConfig config;
  EnginePort& engine;
  const std::shared_ptr<EventQueue> events;
  const std::shared_ptr<RequestObserver> observer;  // may be null
  Metrics metrics;
  RequestTable table;
  std::atomic<uint64_t> next_id{1};  // requests and sequences share one numbering
};

}  // namespace skiff::service

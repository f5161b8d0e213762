// serve/service/service_core.h -- what the parts of the service over an engine share. Private to
// EngineService.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

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
        metrics(metrics_for(this->config)),
        table(this->config.admission) {}

  static std::vector<std::unique_ptr<Metrics>> metrics_for(const ServiceConfig& config) {
    std::vector<std::unique_ptr<Metrics>> all;
    for (int i = 0; i < std::max(1, config.replicas_apart); ++i)
      all.push_back(std::make_unique<Metrics>(config.model_name, config.cache_info, config.drafts));
    return all;
  }
  // Returns those in which a request counts that is for this replica, or for none.
  Metrics& metrics_of(std::optional<int> replica) const {
    const auto apart = static_cast<size_t>(replica.value_or(0));
    return *metrics[apart < metrics.size() ? apart : 0];
  }

  const ServiceConfig config;
  EnginePort& engine;
  const std::shared_ptr<EventQueue> events;
  const std::shared_ptr<RequestObserver> observer;      // may be null
  const std::vector<std::unique_ptr<Metrics>> metrics;  // one for all replicas, or one for each
  RequestTable table;
  std::atomic<uint64_t> next_id{1};  // requests and sequences share one numbering
};

}  // namespace skiff::service

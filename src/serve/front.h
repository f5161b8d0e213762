// serve/front.h -- what every protocol is given, and the gate that all generation passes.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "serve/server.h"
#include "serve/service/service.h"

namespace skiff {

class ApiKeys;

// A generation under way, as the server sees it.
class Running {
 public:
  virtual ~Running() = default;
  // Every second or so: a chance to say that the connection is alive.
  virtual void tick() = 0;
  // The server goes down and waits no longer: cancel, and tell the client.
  virtual void cut_off() = 0;
};

// Counts generations and knows them. Thread-safe.
class Gate {
 public:
  explicit Gate(int most) : most_(most) {}
  // One place; given back when the last copy goes. Null if there is none.
  std::shared_ptr<void> enter() {
    if (count_.fetch_add(1) >= most_) {
      --count_;
      return nullptr;
    }
    return std::shared_ptr<void>(this, [this](void*) { --count_; });
  }
  void watch(const std::shared_ptr<Running>& running) {
    std::lock_guard lock(mutex_);
    std::erase_if(running_, [](const auto& weak) { return weak.expired(); });
    running_.push_back(running);
  }
  std::vector<std::shared_ptr<Running>> all() const {
    std::vector<std::shared_ptr<Running>> alive;
    std::lock_guard lock(mutex_);
    for (const auto& weak : running_)
      if (auto running = weak.lock()) alive.push_back(std::move(running));
    return alive;
  }
  int most() const { return most_; }
  bool full() const { return count_ >= most_; }
  std::atomic<bool> draining{false};
  std::atomic<bool> stalled{false};  // the engine hangs: nothing will come of it any more

 private:
  const int most_;
  std::atomic<int> count_{0};
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<Running>> running_;  // guarded by mutex_
};

// Shared by all handlers, and by generations that an output thread may still hold when the server
// has gone; the service outlives both.
struct Front : std::enable_shared_from_this<Front> {
  Front(ServerConfig config, Service& service, int64_t started)
      : config(std::move(config)),
        service(service),
        gate(this->config.max_concurrency),
        started(started) {}

  const ServerConfig config;
  Service& service;
  Gate gate;
  const int64_t started;          // Unix seconds
  const ApiKeys* keys = nullptr;  // for handlers only: the server owns it

  bool knows_model(const std::string& name) const {
    if (name.empty() || name == "default") return true;
    for (const std::string& known : config.model_names)
      if (known == name) return true;
    return false;
  }
};

}  // namespace skiff

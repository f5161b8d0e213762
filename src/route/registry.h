// route/registry.h -- the backends of a router: those that it was started with and those that have
// registered. Pure logic, on the router's thread; times are passed in.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "route/backend.h"

namespace skiff::route {

class Registry {
 public:
  struct Settings {
    bool splitwise = false;      // pairs of prefill and decode instead of mixed instances
    size_t max_blocks = 65536;   // capacity of each backend's PrefixCache
    double forget_seconds = 60;  // time that a backend is down and silent before it is forgotten
    size_t max_backends = 1024;
  };
  explicit Registry(const Settings& settings) : settings_(settings) {}

  // Refuses a role that this kind of router has no use for.
  Status check(const Instance& instance) const;
  std::shared_ptr<Backend> find(const std::string& url) const;  // null if there is none
  // Adds an instance, or replaces what is known of the one with its URL: load, health and prefixes
  // stay. The error is that there are too many.
  Result<std::shared_ptr<Backend>> put(const Instance& instance, bool fixed, Clock::time_point now);
  // Forgets backends that are down and have not registered for a while.
  void forget_absent(Clock::time_point now);

  const std::vector<std::shared_ptr<Backend>>& all() const { return backends_; }
  std::vector<std::shared_ptr<Backend>> usable(Role role) const;
  size_t count(Role role) const;

 private:
  const Settings settings_;
  std::vector<std::shared_ptr<Backend>> backends_;
};

}  // namespace skiff::route

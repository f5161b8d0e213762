// route/prober.h -- asks backends how they are: regularly, and when they register. On the router's
// thread.
#pragma once
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>

#include "route/core.h"

namespace skiff::route {

class Prober {
 public:
  explicit Prober(RouterCore& core) : core_(core), timer_(core.io) {}

  // Probes all backends now and then once in an interval, until stop().
  void start();
  void stop() { timer_.cancel(); }
  // Probes one backend out of turn, which may change its state. `done` gets whether it is healthy.
  void probe(const std::shared_ptr<Backend>& backend, std::function<void(bool good)> done);

 private:
  void probe_all();
  void judge(const std::shared_ptr<Backend>& backend, bool good, const std::string& why);
  void ask_load(const std::shared_ptr<Backend>& backend);

  RouterCore& core_;
  net::steady_timer timer_;
};

// Gets a short text from a backend, within HealthSettings::timeout. `done` is called once: with the
// body of a 200, or with nothing and the reason.
void get_text(RouterCore& core, const std::shared_ptr<Backend>& backend, const std::string& path,
              std::function<void(std::optional<std::string> body, const std::string& why)> done);

// Returns running + 10 x waiting by the metrics of Skiff, FastDeploy or vLLM, and a negative number
// if they are not there.
double load_score(std::string_view metrics);

}  // namespace skiff::route

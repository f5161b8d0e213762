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
  void judge(const std::shared_ptr<Backend>& backend, int status, const std::string& text);
  void ask_load(const std::shared_ptr<Backend>& backend);

  RouterCore& core_;
  net::steady_timer timer_;
};

// Sends one request to a backend, within HealthSettings::timeout; `head` ends with an empty line,
// and `body` may be null. `done` is called once: with the status and the body of the answer, or
// with 0 and the reason why there is none.
void ask(RouterCore& core, const std::shared_ptr<Backend>& backend, std::string head,
         std::shared_ptr<const std::string> body,
         std::function<void(int status, std::string text)> done);

// Gets a short text with ask(), at `path`.
void get_text(RouterCore& core, const std::shared_ptr<Backend>& backend, const std::string& path,
              std::function<void(int status, std::string text)> done);

// Returns running + 10 x waiting by the metrics of Skiff, FastDeploy or vLLM, and a negative number
// if they are not there.
double load_score(std::string_view metrics);

}  // namespace skiff::route

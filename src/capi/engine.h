// capi/engine.h -- an engine from its options to its end: it loads in a thread of its own, serves,
// and is stopped.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "capi/ending.h"
#include "capi/loaded.h"
#include "capi/notice.h"
#include "capi/outbox.h"
#include "capi/outcome.h"

namespace skiff::capi {

// Thread-safe.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  // Checks the options and begins to load. `*engine` is set on success only.
  static Outcome open(std::string_view options, std::shared_ptr<Engine>* engine);
  // The default of `skiff serve`'s --watchdog-timeout.
  static constexpr std::chrono::seconds kLongestStep{300};
  // `longest_step` is how long stop() waits for the step under way.
  explicit Engine(apps::Args args, std::chrono::duration<double> longest_step = kLongestStep);
  ~Engine() { stop(); }

  // See skiff_ready().
  Outcome ready(int timeout_ms, double* part) const;
  // The loaded model, which its users share: it outlives stop() for as long as they need it.
  Outcome loaded(std::shared_ptr<Loaded>* loaded) const;
  // An outbox that is closed when the engine stops.
  Outcome attach(const std::shared_ptr<Outbox>& outbox);
  // SKIFF_INTERNAL where the engine's thread does not end: the device hangs, and nothing has said
  // so within the time that the longest step may take. What that thread uses stays. A later call
  // says the same, at once, until the thread has ended after all.
  Outcome stop();

 private:
  void load();
  std::shared_ptr<Loaded> make_loaded();
  void fail(const std::string& why);
  Outcome state() const;
  void set_state(Outcome state);
  void close_outboxes(const Outcome& why);
  void end(std::shared_ptr<Loaded> loaded);
  Outcome ended();

  const apps::Args args_;
  const std::chrono::duration<double> longest_step_;
  const Notice settled_;  // the model is loaded, or will never be
  std::atomic<double> part_{0};
  std::atomic<bool> stopping_{false}, parked_{false};
  mutable std::mutex mutex_;  // guards the three below
  Outcome state_{.status = SKIFF_LOADING, .what = "the model is loading; wait with skiff_ready()"};
  std::shared_ptr<Loaded> loaded_;
  std::vector<std::weak_ptr<Outbox>> outboxes_;
  std::mutex joining_;  // held by the one stop() that waits for the threads
  Ending ending_;
  std::thread loader_;
};

}  // namespace skiff::capi

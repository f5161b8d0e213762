// serve/service/upkeep.h -- what an operator does with the memory of a model that is served: puts
// it to sleep, wakes it, replaces its weights. Requests are kept out meanwhile.
#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "engine/residency.h"
#include "serve/service/service.h"

namespace skiff::service {

struct Slept {
  engine::GivenBack given;
  std::vector<Aborted> aborted;
};
struct Updated {
  engine::WeightsState weights;
  std::vector<Aborted> aborted;
};

// All methods may be called from any thread but the output thread; one of those that wait is
// carried out at a time. A service that an operator pauses during one of them stays paused, unless
// it sleeps afterwards.
class Upkeep {
 public:
  // How requests are kept out.
  struct Door {
    std::function<std::string()> pause_reason;        // see Service
    std::function<void(std::string why)> set_paused;  // empty: requests are taken
    std::function<bool()> is_empty;                   // no request is under way
    std::function<std::vector<Aborted>()> end_all;
  };
  Upkeep(engine::Residency& residency, Door door);

  // On an error the service is as it was before, but for the requests that were ended.
  Result<Slept> sleep(engine::Parts parts, Ending ending);
  // When nothing is absent any more, requests are taken again, also by a service that was paused
  // before it slept. On an error what was absent stays so. `renamed`: see engine::Residency.
  Status wake(engine::Parts parts, bool renamed = false);
  // A service that was paused or slept before stays paused; any other takes requests again, with
  // the old weights where there is an error.
  Result<Updated> update(const engine::WeightsUpdate& update, Ending ending);

  engine::Parts absent() const { return residency_.absent(); }
  engine::WeightsState weights() const { return residency_.state(); }
  // Says again why requests are refused, where something is absent: whoever pauses has said another
  // reason. It never waits for a change that is under way.
  void restate();
  // Returns true while something is absent or changes, so that nobody may resume the service.
  bool keeps_paused() const { return changing_ || absent().any(); }

 private:
  std::vector<Aborted> keep_out(const char* why, Ending ending);
  void settle(const std::string& before, const std::string& mine);

  engine::Residency& residency_;
  const Door door_;
  std::mutex mutex_;  // held while something changes
  std::atomic<bool> changing_{false};
};

}  // namespace skiff::service

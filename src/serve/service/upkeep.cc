#include "serve/service/upkeep.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/seconds.h"

namespace skiff::service {
namespace {

std::string sleeping(engine::Parts absent) {
  const char* what = !absent.kv        ? "weights are"
                     : !absent.weights ? "the KV cache is"
                                       : "weights and KV cache are";
  return fmt::format("the server sleeps: {} not in memory", what);
}

// Keeps a flag true until the end of its own life.
class While {
 public:
  explicit While(std::atomic<bool>& flag) : flag_(flag) { flag_ = true; }
  ~While() { flag_ = false; }
  While(const While&) = delete;

 private:
  std::atomic<bool>& flag_;
};

}  // namespace

Upkeep::Upkeep(engine::Residency& residency, Door door)
    : residency_(residency), door_(std::move(door)) {}

std::vector<Aborted> Upkeep::keep_out(const char* why, Ending ending) {
  door_.set_paused(why);
  const auto begin = std::chrono::steady_clock::now();
  while (ending.waits && !door_.is_empty() && seconds_since(begin) < ending.seconds)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return door_.end_all();
}

// Pauses for what is absent now, or else as it was before. Where the reason is no longer `mine`, an
// operator has paused the service meanwhile, and it stays paused.
void Upkeep::settle(const std::string& before, const std::string& mine) {
  if (absent().any())
    door_.set_paused(sleeping(absent()));
  else if (door_.pause_reason() == mine)
    door_.set_paused(before);
}

// A change that is under way calls settle() at its end.
void Upkeep::restate() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock && absent().any()) door_.set_paused(sleeping(absent()));
}

Result<Slept> Upkeep::sleep(engine::Parts parts, Ending ending) {
  const std::lock_guard lock(mutex_);
  const While changing(changing_);
  const std::string before = door_.pause_reason();
  const char* mine = "the server goes to sleep";
  Slept slept{.aborted = keep_out(mine, ending)};
  const auto given = residency_.give_back(parts);
  settle(before, mine);
  if (!given) return given.error();
  slept.given = *given;
  return slept;
}

Status Upkeep::wake(engine::Parts parts, bool renamed) {
  const std::lock_guard lock(mutex_);
  const While changing(changing_);
  const std::string mine = door_.pause_reason();
  const Status done = residency_.take_back(parts, renamed);
  settle(done ? "" : mine, mine);
  return done;
}

Result<Updated> Upkeep::update(const engine::WeightsUpdate& update, Ending ending) {
  const std::lock_guard lock(mutex_);
  const While changing(changing_);
  const bool slept = absent().any();
  const std::string before = door_.pause_reason();
  const char* mine = "weights are being replaced";
  Updated updated{.aborted = keep_out(mine, ending)};
  auto weights = residency_.update(update);
  settle(slept ? "the server is paused: weights were replaced while it slept" : before, mine);
  if (!weights) return weights.error();
  updated.weights = std::move(*weights);
  return updated;
}

}  // namespace skiff::service

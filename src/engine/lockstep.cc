#include "engine/lockstep.h"

#include <chrono>
#include <utility>

#include "base/check.h"

namespace skiff::engine {
namespace {

// Longer than an engine takes from a step's result to the next plan, and short beside a step.
constexpr auto kGrace = std::chrono::microseconds(200);

std::vector<std::shared_ptr<comm::RowExchange>> make_exchanges(int replicas) {
  std::vector<std::shared_ptr<comm::RowExchange>> all;
  for (auto& one : comm::make_thread_exchanges(replicas)) all.push_back(std::move(one));
  return all;
}

}  // namespace

Lockstep::Lockstep(int replicas)
    : exchanges_(make_exchanges(replicas)), places_(static_cast<size_t>(replicas)) {}

void Lockstep::open(int replica) {
  std::lock_guard lock(mutex_);
  Place& place = places_[static_cast<size_t>(replica)];
  SKIFF_CHECK(place.closed, "replica {} has a runner already", replica);
  place.closed = false;
}

void Lockstep::close(int replica) {
  std::lock_guard lock(mutex_);
  Place& place = places_[static_cast<size_t>(replica)];
  place.closed = true;
  place.wake.notify_one();
}

void Lockstep::give(int replica, StepPlan plan) {
  give_to(places_[static_cast<size_t>(replica)], std::move(plan));
}

void Lockstep::give(int replica, Task task) {
  give_to(places_[static_cast<size_t>(replica)], std::move(task));
}

template <class What>
void Lockstep::give_to(Place& place, What what) {
  std::lock_guard lock(mutex_);
  place.given.emplace_back(std::move(what));
  place.wake.notify_one();
}

// A replica that had rows in the last round is about to have the next ones. Without the grace, two
// replicas that plan a step only when they have the result of the one before could take turns: each
// would have rows in every other round only, and both together would take twice as many.
Lockstep::Turn Lockstep::next(int replica) {
  std::unique_lock lock(mutex_);
  Place& place = places_[static_cast<size_t>(replica)];
  const auto has_own = [&] { return place.closed || !place.given.empty(); };
  place.wake.wait(lock, [&] { return has_own() || called_ > place.rounds; });
  if (place.had_rows) place.wake.wait_for(lock, kGrace, has_own);
  if (!place.given.empty()) return take(place);
  if (place.closed) return Closed{};
  begin_round(place, /*rows=*/false);
  return Company{};
}

// A plan that only copies blocks needs no company.
Lockstep::Turn Lockstep::take(Place& place) {
  auto given = std::move(place.given.front());
  place.given.pop_front();
  if (auto* task = std::get_if<Task>(&given)) return std::move(*task);
  auto& plan = std::get<StepPlan>(given);
  if (!plan.spans.empty()) begin_round(place, /*rows=*/true);
  return std::move(plan);
}

// No replica is more than one round ahead of another, because each round needs all of them.
void Lockstep::begin_round(Place& place, bool rows) {
  place.had_rows = rows;
  if (++place.rounds <= called_) return;
  called_ = place.rounds;
  for (Place& other : places_)
    if (&other != &place) other.wake.notify_one();
}

}  // namespace skiff::engine

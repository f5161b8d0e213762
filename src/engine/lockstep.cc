#include "engine/lockstep.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "comm/communicator.h"

namespace skiff::engine {
namespace {

// Longer than an engine takes from a step's result to the next plan, a few hundred microseconds
// where hundreds of sequences have drafts, and short beside the round that it would miss.
constexpr auto kGrace = std::chrono::milliseconds(1);
// Longer than engines whose steps take the same time differ in when they plan the next one.
constexpr auto kGraceInFlight = std::chrono::milliseconds(20);
// An engine plans its next step late in the one that computes (see StepPacer), which may have begun
// behind another round.
constexpr int kRoundsOfGrace = 2;
constexpr auto kMostGraceInFlight = std::chrono::seconds(5);

std::vector<Lockstep::Exchanges> make_exchanges(int replicas, int ranks) {
  std::vector<Lockstep::Exchanges> all(static_cast<size_t>(ranks));
  for (Lockstep::Exchanges& group : all)
    for (auto& one : comm::make_thread_exchanges(replicas)) group.push_back(std::move(one));
  return all;
}

}  // namespace

Lockstep::Lockstep(std::vector<Exchanges> by_rank)
    : exchanges_(std::move(by_rank)), places_(exchanges_.front().size()) {
  for (Place& place : places_) place.agreed.resize(places_.size());
}

Lockstep::Lockstep(int replicas, int ranks) : Lockstep(make_exchanges(replicas, ranks)) {}

// Whoever finds a result without meaning, because the exchange has let it go, finds ended_ set.
void Lockstep::end(const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    if (!ended_) ended_ = why;
    for (Place& place : places_) place.wake.notify_one();
  }
  for (const Exchanges& group : exchanges_) group.front()->abort(why);
}

void Lockstep::throw_if_ended() {
  std::lock_guard lock(mutex_);
  if (ended_) throw comm::GroupEnded(*ended_);
}

std::vector<std::byte> Lockstep::of_first(int replica, std::vector<std::byte> mine) {
  if (replica == 0) of_first_ = std::move(mine);
  exchange(replica)->least(0);
  return of_first_;
}

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
Lockstep::Turn Lockstep::next(int replica, bool in_flight) {
  std::unique_lock lock(mutex_);
  Place& place = places_[static_cast<size_t>(replica)];
  const auto has_own = [&] { return place.closed || !place.given.empty(); };
  place.wake.wait(lock, [&] { return has_own() || called_ > place.rounds; });
  if (in_flight)
    place.wake.wait_for(lock, grace_in_flight(), has_own);
  else if (place.had_rows)
    place.wake.wait_for(lock, kGrace, has_own);
  if (!place.given.empty()) return take(place);
  if (place.closed) return Closed{};
  begin_round(place, {});
  return Company{};
}

// A plan that only copies blocks needs no company.
Lockstep::Turn Lockstep::take(Place& place) {
  auto given = std::move(place.given.front());
  place.given.pop_front();
  if (auto* task = std::get_if<Task>(&given)) return std::move(*task);
  auto& plan = std::get<StepPlan>(given);
  if (!plan.spans.empty()) begin_round(place, part_of(plan));
  return std::move(plan);
}

// No replica is more than one round ahead of another, because each round needs all of them.
void Lockstep::begin_round(Place& place, const RoundPart& part) {
  place.had_rows = part.rows > 0;
  ++place.rounds;
  place.parts[place.rounds % 2] = part;
  if (place.rounds > called_) {
    called_ = place.rounds;
    const auto now = Clock::now();
    between_ = now - std::exchange(called_at_, now);
  }
  for (Place& other : places_)
    if (&other != &place) other.wake.notify_one();
}

// Replicas with long steps would take turns for good if one that plans at the end of its step had
// missed the round by then. Rounds follow each other as fast as the devices compute them, or,
// where there was nothing to do, more slowly.
Lockstep::Clock::duration Lockstep::grace_in_flight() const {
  return std::clamp<Clock::duration>(kRoundsOfGrace * between_, kGraceInFlight, kMostGraceInFlight);
}

std::span<const RoundPart> Lockstep::agree(int replica) {
  std::unique_lock lock(mutex_);
  Place& place = places_[static_cast<size_t>(replica)];
  const uint64_t round = place.rounds;
  const auto has_begun = [round](const Place& other) { return other.rounds >= round; };
  place.wake.wait(lock, [&] { return ended_ || std::ranges::all_of(places_, has_begun); });
  if (ended_) throw comm::GroupEnded(*ended_);
  for (size_t i = 0; i < places_.size(); ++i) place.agreed[i] = places_[i].parts[round % 2];
  return place.agreed;
}

}  // namespace skiff::engine

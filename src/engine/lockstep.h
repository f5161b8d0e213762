// engine/lockstep.h -- when replicas that share experts compute: in rounds, all of them or none.
#pragma once
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "comm/row_exchange.h"
#include "engine/round.h"
#include "message/step.h"

namespace skiff::engine {

// In a round every replica makes one forward pass: a step of its own or, where it has none, one
// without rows, because its experts work for the rows of all. A replica that has a step begins its
// next round and so calls the others to it. Nobody plans for all, and there is no agreement on when
// to stop: where no replica has a step, none is called, and the threads of all sleep.
//
// Devices compute asynchronously, and how a pass is launched follows from the rows of all. So each
// replica says when it begins a round what it has, and agree() has its thread wait until all have.
// That is a round ahead of the devices while steps are planned ahead.
//
// It owns the exchanges through which rows and sums pass, and outlives all replicas. Where each
// replica is computed by several ranks, those of the same number are a group of their own, in which
// every rank has the rows of its replica. Thread-safe.
class Lockstep {
 public:
  using Exchanges = std::vector<std::shared_ptr<comm::RowExchange>>;  // by replica
  // What the ranks of each number exchange rows through, by that number, at least one; or
  // exchanges of threads, for ranks that compute on the host.
  explicit Lockstep(std::vector<Exchanges> by_rank);
  explicit Lockstep(int replicas, int ranks = 1);
  Lockstep(const Lockstep&) = delete;

  std::shared_ptr<comm::RowExchange> exchange(int replica, int rank = 0) const {
    return exchanges_[static_cast<size_t>(rank)][static_cast<size_t>(replica)];
  }
  // Ends the group because a replica cannot go on, which `why` names: the others leave the round
  // that they are in, and every later one, with comm::GroupEnded. The first reason counts.
  void end(const std::string& why);
  void throw_if_ended();
  // Returns what replica 0 gave, once all replicas have called it.
  std::vector<std::byte> of_first(int replica, std::vector<std::byte> mine);

  // What the thread of a replica does next.
  using Task = std::packaged_task<void()>;
  struct Company {};  // takes part in a round without rows
  struct Closed {};   // ends
  using Turn = std::variant<Closed, Company, StepPlan, Task>;

  // One runner at a time computes for a replica, between open() and close(). A round that is called
  // meanwhile waits for the next one.
  void open(int replica);
  void close(int replica);  // what was given is still done
  void give(int replica, StepPlan plan);
  void give(int replica, Task task);
  // Blocks until the replica's thread has something to do, and returns it, in the order in which it
  // was given. A plan with rows, and Company, is the replica's part in its next round. `in_flight`:
  // it has launched steps whose results were not asked for. Then its engine will give something
  // before they end, and whoever calls it waits for its rows, for about as long as rounds take:
  // the devices compute meanwhile.
  Turn next(int replica, bool in_flight = false);
  // Returns the parts of all replicas in the round that this one has begun last, by number, once
  // all have begun it; until the replica's next call. Throws comm::GroupEnded.
  std::span<const RoundPart> agree(int replica);

 private:
  using Clock = std::chrono::steady_clock;
  struct Place {
    std::condition_variable wake;
    std::deque<std::variant<StepPlan, Task>> given;
    uint64_t rounds = 0;  // in which it has taken part
    // Its parts in the last two: whoever is in the next round may not have looked at this one's
    // yet.
    std::array<RoundPart, 2> parts{};
    std::vector<RoundPart> agreed;  // what agree() has returned; the replica's own
    bool had_rows = false;          // in the last of them
    bool closed = true;
  };
  template <class What>
  void give_to(Place& place, What what);
  Turn take(Place& place);
  void begin_round(Place& place, const RoundPart& part);
  Clock::duration grace_in_flight() const;

  const std::vector<Exchanges> exchanges_;  // by rank
  std::mutex mutex_;
  std::vector<Place> places_;             // guarded by mutex_
  uint64_t called_ = 0;                   // rounds that a replica has begun; guarded by mutex_
  Clock::time_point called_at_;           // when the last of them was begun first
  Clock::duration between_{};             // from the one before it
  std::optional<std::string> ended_;      // why; guarded by mutex_
  std::vector<std::byte> of_first_ = {};  // written by replica 0 before a meeting
};

}  // namespace skiff::engine

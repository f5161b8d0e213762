// comm/thread_group.h -- what all groups of threads of one process are made of: each rank shows the
// others its tensor and reads theirs, so nothing is copied that is not summed or gathered.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/call.h"
#include "comm/meeting.h"
#include "ops/ops.h"

namespace skiff::comm {

class ThreadGroup {
 public:
  // What a rank shows to the others.
  struct Shown {
    Call call;
    Tensor tensor;
    int64_t number = 0;
  };

  explicit ThreadGroup(int size) : meeting_(size), shown_(static_cast<size_t>(size)) {}

  int size() const { return static_cast<int>(shown_.size()); }
  // Shows the others what this rank has. Returns what all have, by rank, once all have come; it may
  // be read until this rank calls part(). Ranks that are at different places would add up unlike
  // things, so they end the group instead: throws GroupEnded.
  std::span<const Shown> meet(int rank, const Shown& mine);
  // Returns once all ranks have called it, so that none reads what this one has shown.
  void part() { meeting_.arrive(); }
  // See Communicator.
  int64_t least(int rank, int64_t mine);
  void end(const std::string& why) { meeting_.end(why); }

 private:
  Meeting meeting_;
  std::vector<Shown> shown_;  // by rank; an entry is written by its rank before a meeting
};

// Returns x, which must lie where threads of the host can read it.
Tensor on_host(Tensor x, const Ops& ops);

}  // namespace skiff::comm

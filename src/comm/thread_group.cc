#include "comm/thread_group.h"

#include <algorithm>

#include "comm/communicator.h"

namespace skiff::comm {

std::span<const ThreadGroup::Shown> ThreadGroup::meet(int rank, const Shown& mine) {
  shown_[static_cast<size_t>(rank)] = mine;
  meeting_.arrive();
  for (int other = 1; other < size(); ++other) {
    const Call& call = shown_[static_cast<size_t>(other)].call;
    if (call == shown_[0].call) continue;
    const std::string why = describe_apart(shown_[0].call, call, other);
    end(why);
    throw GroupEnded(why);
  }
  return shown_;
}

int64_t ThreadGroup::least(int rank, int64_t mine) {
  int64_t least = mine;
  for (const Shown& shown :
       meet(rank, {.call = call_of(Collective::kLeast, {}), .tensor = {}, .number = mine}))
    least = std::min(least, shown.number);
  part();
  return least;
}

Tensor on_host(Tensor x, const Ops& ops) {
  SKIFF_CHECK(ops.device() == Device{}, "threads of {} are no group yet", ops.name());
  return x;
}

}  // namespace skiff::comm

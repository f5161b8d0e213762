// engine/tier_thread.h -- the thread that reads and writes the cache's file, and a second one that
// gives up on it if the disk does not answer.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <thread>

#include "base/queue.h"
#include "engine/tier_io.h"

namespace skiff::engine {

// Reads go before writes, because requests wait for them. There are never more jobs than host
// blocks, since each job has one to itself.
//
// Nobody waits for a disk that hangs. A read that is not done within `answer` seconds of start() is
// answered as late. A call that takes longer than that by itself takes the whole file out of use,
// with one warning: all jobs are answered as late, the engine gets a TierState, and no job is tried
// again until the call has returned and `rest` seconds have passed. Time during which the whole
// process was stopped does not count. Calls work on memory of this object and never on a host
// block, so one that returns after its job was answered changes nothing.
//
// Thread-safe.
class TierThread final : public TierIo {
 public:
  // Reads or writes the block of a job, whose size is that of a host block; returns false on
  // failure. Called by one thread.
  using Work = std::function<bool(const kv::TierJob& job, std::span<std::byte> block)>;
  using HostMemory = std::function<std::span<std::byte>(int host_block)>;
  struct Patience {
    double answer = 2;     // see above; in seconds, like the members below
    double rest = 60;      // see above
    double farewell = 10;  // how long the destructor waits for pending writes
  };
  // The inbox and the host memory must outlive this object. `work` may outlive it: a call that
  // never returns keeps its thread, and what `work` holds, until the process ends. `source` is the
  // file's place among the BlockSources.
  TierThread(Work work, HostMemory host, Queue<Command>& inbox, const Patience& patience,
             int source = 0);
  // Carries out the writes that were started, within Patience, and ends the threads.
  ~TierThread() override;
  void start(kv::TierJob job) override;

 private:
  struct State;
  const std::shared_ptr<State> state_;
  std::thread worker_, watch_;
};

}  // namespace skiff::engine

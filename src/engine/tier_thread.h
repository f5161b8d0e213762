// engine/tier_thread.h -- the thread that reads and writes the cache's file.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "base/queue.h"
#include "engine/tier_io.h"
#include "store/block_store.h"

namespace skiff {

// Reads go before writes: somebody waits for them. There are never more jobs than slots, since
// each has one to itself. Thread-safe.
class TierThread final : public TierIo {
 public:
  using Slots = std::function<std::span<std::byte>(int slot)>;
  // The inbox and the memory of the slots must outlive the thread.
  TierThread(std::unique_ptr<BlockStore> store, Slots slots, Queue<Command>& inbox);
  ~TierThread() override;  // does what was asked for, then ends the thread
  void start(TierJob job) override;

 private:
  void run();
  bool carry_out(const TierJob& job);

  const std::unique_ptr<BlockStore> store_;
  const Slots slots_;
  Queue<Command>& inbox_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TierJob> reads_, writes_;  // guarded by mutex_
  bool ending_ = false;                 // guarded by mutex_
  std::thread thread_;
};

}  // namespace skiff

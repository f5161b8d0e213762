// engine/stats_board.h -- the last snapshot of the engine's numbers, for any thread to read.
#pragma once
#include <chrono>
#include <mutex>

#include "engine/llm.h"

namespace skiff::engine {

// Thread-safe.
class StatsBoard {
 public:
  // begin_work(): a sequence was submitted; end_work(): one has ended.
  void begin_work() {
    std::lock_guard lock(mutex_);
    if (work_++ == 0) progress_ = Clock::now();
  }
  void end_work() {
    std::lock_guard lock(mutex_);
    --work_;
  }
  // While the engine rests (engine/rest.h), what was submitted waits, and that is no hang.
  void rest(bool rests) {
    std::lock_guard lock(mutex_);
    rests_ = rests;
    progress_ = Clock::now();
  }
  void write(const EngineStats& stats) {
    std::lock_guard lock(mutex_);
    const auto answers = [](const kv::TierStats& tiers) { return tiers.reads + tiers.failures; };
    if (stats.steps != stats_.steps || answers(stats.tiers) != answers(stats_.tiers))
      progress_ = Clock::now();
    stats_ = stats;
  }
  EngineStats read() const {
    std::lock_guard lock(mutex_);
    EngineStats stats = stats_;
    const std::chrono::duration<double> quiet = Clock::now() - progress_;
    stats.seconds_since_progress = work_ > 0 && !rests_ ? quiet.count() : 0;
    return stats;
  }

 private:
  using Clock = std::chrono::steady_clock;
  mutable std::mutex mutex_;
  EngineStats stats_;  // guarded by mutex_, as are the members below
  int work_ = 0;       // submitted sequences that have not ended
  bool rests_ = false;
  Clock::time_point
      progress_{};  // time of the last committed step or tier's answer, or when work began
};

}  // namespace skiff::engine

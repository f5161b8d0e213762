// sample/staging.h -- page-locked memory through which draws send small arrays to where Ops
// computes.
#pragma once
#include <array>
#include <cstddef>

#include "ops/ops.h"
#include "ops/pinned_arena.h"

namespace skiff::sample {

// Draws use three pieces of memory in turn, so that what a draw sends stays until it is done.
// Driven by the thread that drives `ops`.
class Staging {
 public:
  static constexpr size_t kTurnBytes = size_t{3} << 20;  // what one turn sends without a wait
  static constexpr size_t kBytes = 4 * kTurnBytes;       // bounds what is held

  explicit Staging(Ops& ops) : ops_(ops) {}
  // Begins a draw. All operations of draws before the last two must be done.
  void begin();
  // Returns this turn's memory with room for `bytes` more, at most kTurnBytes; waits until it is no
  // longer in use if necessary, so an operation that uses it must be called before the next room().
  PinnedArena& room(size_t bytes);

 private:
  Ops& ops_;
  std::array<PinnedArena, 3> turns_;
  size_t turn_ = 0, used_ = 0;  // this turn, and its bytes that are in use
};

}  // namespace skiff::sample

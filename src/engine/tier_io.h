// engine/tier_io.h -- whoever reads and writes the cache's file.
#pragma once
#include "kv/tiers.h"

namespace skiff {

// start() returns at once. Each job is answered by a TierDone in the engine's inbox, in any order
// and within a bounded time; until then nobody else touches its slot. A TierState says when the
// file goes out of use and when it is in use again.
class TierIo {
 public:
  virtual ~TierIo() = default;
  virtual void start(TierJob job) = 0;
};

}  // namespace skiff

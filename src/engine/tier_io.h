// engine/tier_io.h -- the interface that moves the bytes of a source of cached blocks.
#pragma once
#include "kv/tiers.h"

namespace skiff::engine {

// start() returns at once. Each job is answered by a TierDone in the engine's inbox, in any order
// and within a bounded time; until then nobody else touches its host block. A TierState reports
// when the source goes out of use and when it returns.
class TierIo {
 public:
  virtual ~TierIo() = default;
  virtual void start(kv::TierJob job) = 0;
};

}  // namespace skiff::engine

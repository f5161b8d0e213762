// engine/rehearsal.h -- work that is rehearsed at start-up.
#pragma once
#include <functional>

#include "ops/ops.h"

namespace skiff::engine {

// Ops::rehearse() as often as each kind of step needs it, so that a measurement that was disturbed
// once does not count.
inline void rehearse(Ops& ops, const std::function<void()>& work) {
  constexpr int kRounds = 2;
  for (int i = 0; i < kRounds; ++i) ops.rehearse(work);
}

}  // namespace skiff::engine

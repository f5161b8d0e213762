// engine/start_log.h -- what start-up says on its way, and what it knows when it fails.
#pragma once
#include <string>

#include "base/progress.h"
#include "engine/ledger.h"

namespace skiff::engine {

struct StartLog {
  bool quiet = false;  // no plan, no bar, no ledger
  Progress progress;   // loaded bytes of weights, replaces the bar; may be empty
  Ledger ledger;
  std::string memory;  // the minimum need, then the memory plan: for an error message
};

}  // namespace skiff::engine

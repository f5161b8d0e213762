// engine/start_log.h -- what start-up reports to the user, and what it adds to an error message.
#pragma once
#include <string>

#include "base/progress.h"
#include "engine/ledger.h"

namespace skiff::engine {

struct StartLog {
  bool quiet = false;  // print no plan, progress bar or ledger
  Progress progress;   // called with the loaded bytes of weights; replaces the bar; may be empty
  Ledger ledger;
  std::string memory;  // the least need, then the memory plan; for error messages
};

}  // namespace skiff::engine

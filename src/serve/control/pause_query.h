// serve/control/pause_query.h -- the query of a request that pauses the server.
#pragma once
#include <string_view>

#include "base/result.h"
#include "serve/service/service.h"

namespace skiff::control {

struct PauseQuery {
  service::Ending ending;
  bool forgets = false;  // the prefix cache, once requests have ended
};

// Reads vLLM's parameters: "mode", abort or wait, and its older spelling
// "wait_for_inflight_requests"; "clear_cache"; and "timeout", the seconds that a wait lasts at
// most. mode=keep, which would hold requests back and go on with them later, is refused.
// Error::field is the key to blame.
Result<PauseQuery> read_pause_query(std::string_view query);

}  // namespace skiff::control

// serve/control/upkeep_query.h -- the query and the body of requests that put a server to sleep,
// wake it or replace its weights.
#pragma once
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "serve/service/upkeep.h"

namespace skiff::control {

struct UpkeepQuery {
  engine::Parts parts{.weights = true, .kv = true};  // all, where no tag is given
  service::Ending ending;
};

// Reads "tags=weight,kv_cache", where weights is another word for weight and tags may come more
// than once; vLLM's "level", 1 or 2, which both mean all; "mode", abort or wait; and "timeout", the
// seconds that mode=wait waits at most, 60 unless given. Percent escapes are decoded. Error::field
// is the key to blame.
Result<UpkeepQuery> read_upkeep_query(std::string_view query);

// Reads {"version": text or number, "path": folder, "verify_checksum": bool, "checksum": text}. All
// are optional, null is absent, and any other key is refused. Error::field is the key to blame.
Result<engine::WeightsUpdate> read_update(const OrderedJson& body);

}  // namespace skiff::control

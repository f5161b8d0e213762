// serve/control/upkeep_routes.h -- sleep, wake-up and new weights: FastDeploy's paths and vLLM's,
// and the older pair of FastDeploy that clears weights and reads them again.
#pragma once
#include <vector>

#include "serve/http/route_table.h"
#include "serve/service/upkeep.h"

namespace skiff::control {

// All of them are Access::kAdmin. `upkeep` outlives the routes; null: each says which flag the
// server lacks. What one of them began is awaited when they are destroyed.
std::vector<http::Route> upkeep_routes(service::Upkeep* upkeep);

}  // namespace skiff::control

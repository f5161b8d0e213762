// serve/probes.h -- what orchestrators and dashboards ask: health, metrics, version.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "serve/http/route_table.h"
#include "serve/server_context.h"

namespace skiff {

// /live, /health, /ping, /metrics, /version
std::vector<Route> probe_routes(ServerContext& context);
// The same probes before there is a service; `progress` says how far loading has come.
std::vector<Route> boot_routes(std::function<std::string()> progress);

// A 503 whose Retry-After leaves time to ask another server first.
HttpResponse unavailable(const std::string& why);

}  // namespace skiff

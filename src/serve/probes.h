// serve/probes.h -- what orchestrators and dashboards ask: health, metrics, version.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "serve/http/route_table.h"
#include "serve/server_context.h"

namespace skiff::serve {

// /live, /health, /ready, /ping, /metrics, /version, and Triton's /v2/health/live and
// /v2/health/ready
std::vector<http::Route> probe_routes(ServerContext& context);
// The same probes before there is a service; `progress` says how far loading has come.
std::vector<http::Route> boot_routes(std::function<std::string()> progress);

// Why a new request would not be served; empty: it would.
std::string unready(const ServerContext& context);

// A 503 whose Retry-After leaves time to ask another server first.
http::HttpResponse unavailable(const std::string& why);

}  // namespace skiff::serve

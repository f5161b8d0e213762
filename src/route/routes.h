// route/routes.h -- the paths that the router answers itself, and the rest, which it passes on.
#pragma once
#include <vector>

#include "route/core.h"
#include "route/prober.h"
#include "serve/http/route_table.h"

namespace skiff::route {

// Returns all routes of a router. `core` and `prober` must outlive them.
std::vector<http::Route> router_routes(RouterCore& core, Prober& prober);

}  // namespace skiff::route

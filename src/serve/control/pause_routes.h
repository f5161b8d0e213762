// serve/control/pause_routes.h -- the routes that pause the server, FastDeploy's and vLLM's.
#pragma once
#include <vector>

#include "serve/http/route_table.h"
#include "serve/service/service.h"
#include "serve/service/upkeep.h"

namespace skiff::control {

// All of them are Access::kAdmin. `service` and `upkeep`, which may be null, outlive the routes.
std::vector<http::Route> pause_routes(service::Service& service, service::Upkeep* upkeep);

}  // namespace skiff::control

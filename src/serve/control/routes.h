// serve/control/routes.h -- what an operator tells a running server: pause, resume, abort requests,
// forget the prefix cache. FastDeploy's paths and vLLM's. What this server cannot do is answered
// 501 with the reason.
#pragma once
#include <vector>

#include "serve/http/route_table.h"
#include "serve/service/protocol_context.h"
#include "serve/service/upkeep.h"

namespace skiff::control {

// All of them are Access::kAdmin. `context` and `upkeep`, which may be null, outlive the routes.
std::vector<http::Route> control_routes(service::ProtocolContext& context, service::Upkeep* upkeep);

}  // namespace skiff::control

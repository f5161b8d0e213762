// serve/info_routes.h -- the server's description of itself: its configuration, and the routes that
// it answers.
#pragma once
#include <vector>

#include "serve/http/route_table.h"
#include "serve/server_context.h"

namespace skiff::serve {

// /load, /config-info; /load lists `others`.
std::vector<http::Route> info_routes(ServerContext& context,
                                     const std::vector<http::Route>& others);

// Returns all routes of a port that is for observing alone: those of probe_routes() and these.
std::vector<http::Route> observing_routes(ServerContext& context);

}  // namespace skiff::serve

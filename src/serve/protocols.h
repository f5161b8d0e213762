// serve/protocols.h -- one function for each protocol: the routes that it answers.
#pragma once
#include <vector>

#include "serve/front.h"
#include "serve/router.h"

namespace skiff {

std::vector<Route> openai_routes(
    Front& front);                              // /v1/chat/completions, /v1/completions, /v1/models
std::vector<Route> probe_routes(Front& front);  // /health, /ping, /metrics, /version
std::vector<Route> tokenize_routes(Front& front);  // /tokenize, /detokenize
// /load, /config-info; `others` are told by /load.
std::vector<Route> info_routes(Front& front, const std::vector<Route>& others);

}  // namespace skiff

// serve/protocols.h -- one function for each protocol: the routes that it answers.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "serve/front.h"
#include "serve/http/router.h"

namespace skiff {

std::vector<Route> openai_routes(
    Front& front);  // /v1/chat/completions, /v1/completions, /v1/models
// /live, /health, /ping, /metrics, /version
std::vector<Route> probe_routes(Front& front);
std::vector<Route> tokenize_routes(Front& front);  // /tokenize, /detokenize, also under /v1
// /load, /config-info; `others` are told by /load.
std::vector<Route> info_routes(Front& front, const std::vector<Route>& others);
// The same probes while there is no Front; `progress` says how far loading has come.
std::vector<Route> boot_routes(std::function<std::string()> progress);

// 503 that asks to try again after so many seconds, here or at another server.
HttpResponse unavailable(const std::string& why, int retry_seconds);

}  // namespace skiff

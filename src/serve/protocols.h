// serve/protocols.h -- one function for each protocol: the routes that it answers.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "serve/front.h"
#include "serve/router.h"

namespace skiff {

std::vector<Route> openai_routes(
    Front& front);  // /v1/chat/completions, /v1/completions, /v1/models
// /live, /health, /ping, /metrics, /version, /load
std::vector<Route> probe_routes(Front& front);
// The same probes while there is no Front; `progress` says how far loading has come.
std::vector<Route> boot_routes(std::function<std::string()> progress);

// 503 that asks to try again after so many seconds, here or at another server.
HttpResponse unavailable(const std::string& why, int retry_seconds);

}  // namespace skiff

// apps/edge_flags.h -- the flags of `skiff serve` that say who may connect and how much may come.
#pragma once
#include <string>
#include <vector>

#include "apps/args.h"
#include "base/result.h"
#include "serve/server_config.h"

namespace skiff {

// Keys, TLS, CORS, hosts, limits and the access log. Throws UsageError or LoadError.
void apply_edge_flags(const Args& args, ServerConfig* config);

// --api-key and --api-key-file together, or else the environment's FD_API_KEY. Whichever is given
// must hold a key. Reads the file anew at each call. Errors never hold a key.
Result<std::vector<std::string>> api_keys(const Args& args);

// The values of a repeatable flag, each of them plain or a JSON list of strings.
std::vector<std::string> listed(const Args& args, std::string_view flag);

}  // namespace skiff

// apps/edge_flags.h -- the flags of `skiff serve` that decide who may connect and how much a client
// may send.
#pragma once
#include <string>
#include <vector>

#include "apps/args.h"
#include "base/result.h"
#include "serve/server_config.h"

namespace skiff::apps {

// Applies the flags about keys, TLS, CORS, hosts, limits and the access log. Throws UsageError or
// LoadError.
void apply_edge_flags(const Args& args, serve::ServerConfig* config);

// Returns the keys of --api-key and --api-key-file together, or else those of the environment's
// FD_API_KEY. Whichever is given must hold a key. Each call reads the file again. Error messages
// never contain a key.
Result<std::vector<std::string>> api_keys(const Args& args);

// Returns the keys of --admin-key and --admin-key-file together; none if neither is given. Each
// call reads the file again. A key that is among `api_keys`, too, is an error: it would let clients
// control the server.
Result<std::vector<std::string>> admin_keys(const Args& args,
                                            const std::vector<std::string>& api_keys);

// Returns the values of a repeatable flag, each of which may be plain or a JSON list of strings.
std::vector<std::string> listed(const Args& args, std::string_view flag);

}  // namespace skiff::apps

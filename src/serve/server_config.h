// serve/server_config.h -- the configuration of the HTTP server of `skiff serve`.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "serve/http/server.h"
#include "serve/journal/journal.h"
#include "serve/paddle/request.h"
#include "serve/service/protocol_config.h"

namespace skiff::serve {

// What one of several ports is for.
struct PortUse {
  std::optional<int> replica = {};  // the one that computes what comes in here; none: any
  bool observes = false;            // probes, metrics and the configuration, and nothing else
};

// The fields of ProtocolConfig are what protocols see; the rest is the server's own.
struct ServerConfig : service::ProtocolConfig {
  http::HttpConfig http;
  // What each port of `http` is for, in its order; those that are not here are for everything.
  std::vector<PortUse> port_uses;
  int grpc_port = -1;  // 0: any free port; -1: none. Host, limits and TLS files are those of `http`
  paddle::PaddleConfig paddle;
  std::string version = "0.1.0";
  std::vector<std::string> api_keys;      // each of them opens every route; empty: no key is needed
  std::vector<std::string> admin_keys;    // each opens the control endpoints; empty: there are none
  std::vector<std::string> cors_origins;  // "*" or exact origins; empty: no CORS headers
  std::vector<std::string> cors_methods = {"*"}, cors_headers = {"*"};
  bool cors_credentials = false;              // not with the origin "*"
  std::vector<std::string> allowed_hosts;     // see serve/http/host_list.h
  bool web_page = true;                       // GET / gives browsers the page of serve/page
  bool access_log = true;                     // a line at level info for each request
  std::shared_ptr<journal::Journal> journal;  // null: neither request log nor traces
  OrderedJson config_info;                    // the answer to GET /config-info; holds no secret
};

}  // namespace skiff::serve

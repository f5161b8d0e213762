// route/config.h -- the configuration of a router.
#pragma once
#include <string>
#include <vector>

#include "route/instance.h"
#include "route/policy.h"
#include "route/prompt.h"
#include "serve/http/cors.h"
#include "serve/http/server.h"

namespace skiff::route {

struct RouterConfig {
  http::HttpConfig http;
  std::vector<std::string> api_keys;    // keys that clients give; empty: none is needed
  std::vector<std::string> admin_keys;  // keys that registrations give; see open_registration
  // What holds without admin keys: true, anybody who reaches the port may register; false, nobody.
  bool open_registration = false;
  // The key that backends get in place of the client's; empty: clients' keys are passed on.
  std::string backend_key;
  // The key that backends get in place of the operator's with what the operator tells all of them;
  // empty: the operator's key is passed on.
  std::string backend_admin_key;
  std::string backend_ca_file;  // see client_tls()
  http::CorsConfig cors;
  std::vector<std::string> allowed_hosts;
  bool access_log = true;

  std::vector<Instance> backends;  // besides those that register
  bool splitwise = false;
  std::string policy = "prefix";
  std::string prefill_policy = "process_tokens", decode_policy = "request_num";
  PolicySettings policies;
  PromptSettings prompts;
  size_t max_blocks = 65536;  // blocks that are remembered of each backend's prompts

  double health_interval = 5, health_timeout = 5;  // seconds
  int health_failures = 3, health_successes = 2;
  double connect_seconds = 2;     // longest time to make a connection
  int tries = 3;                  // most backends that one request is sent to
  double request_seconds = 1800;  // longest time for a whole answer; 0: no limit
  // Silence after which an answer is given up whose backend is down and answers no probes; 0:
  // never.
  double stall_seconds = 30;
  int max_concurrency = 4096;  // requests under way; more are answered 429
  uint64_t seed = 0;           // seed of random choices
  std::string version = "0.1.0";
};

}  // namespace skiff::route

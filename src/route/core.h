// route/core.h -- what all requests of a router share. Everything but `open` and `draining` is used
// on the router's thread alone, which runs `io`.
#pragma once
#include <boost/asio/io_context.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <unordered_set>

#include "fetch/name_searches.h"
#include "route/config.h"
#include "route/leg.h"
#include "route/metrics.h"
#include "route/registry.h"
#include "serve/http/server.h"

namespace skiff::route {

class Relay;

struct RouterCore {
  // `find` is for tests.
  explicit RouterCore(RouterConfig given, fetch::FindAddresses find = fetch::system_addresses);

  const RouterConfig config;
  const LegSettings legs;
  const HealthSettings health;
  net::io_context io{1};
  fetch::NameSearches names;  // which post to `io`, so they end before it
  Registry registry;
  std::unique_ptr<Policy> mixed, prefill, decode;
  Metrics metrics;
  std::unordered_set<Relay*> relays;  // under way
  std::atomic<int> open{0};           // requests between their arrival and the end of their relay
  std::atomic<bool> draining{false};

  // Returns one of the backends, of which there is at least one, as the policy chooses. Counts how
  // much of the prompt that backend probably has cached, and remembers the prompt for it.
  std::shared_ptr<Backend> choose(Policy& policy,
                                  const std::vector<std::shared_ptr<Backend>>& backends,
                                  const Prompt& prompt);
};

// Returns an error in OpenAI's form; 503 and 429 say when to try again.
http::HttpResponse refusal(int status, const std::string& why);

}  // namespace skiff::route

#include "route/core.h"

#include <utility>

#include "base/load_error.h"
#include "serve/http/api_error.h"

namespace skiff::route {
namespace {

using Backends = std::vector<std::shared_ptr<Backend>>;

// Those that have not just answered 503, or all if each has.
Backends willing(const Backends& backends, Clock::time_point now) {
  Backends out;
  for (const auto& backend : backends)
    if (!backend->refuses(now)) out.push_back(backend);
  return out.empty() ? backends : out;
}

constexpr int kRetrySeconds = 2;
// Threads that may hang in searches for the names of instances.
constexpr size_t kMaxSearches = 128;

std::unique_ptr<Policy> need_policy(const std::string& name, const RouterConfig& config,
                                    uint64_t stream) {
  auto policy = make_policy(name, config.policies, config.seed + stream);
  if (!policy) throw LoadError(policy.error().what);
  return std::move(*policy);
}

}  // namespace

RouterCore::RouterCore(RouterConfig given, fetch::FindAddresses find)
    : config(std::move(given)),
      legs{.connect_seconds = config.connect_seconds, .tls = client_tls(config.backend_ca_file)},
      health{.interval = config.health_interval,
             .timeout = config.health_timeout,
             .failures = config.health_failures,
             .successes = config.health_successes},
      names(kMaxSearches, std::move(find)),
      registry({.splitwise = config.splitwise, .max_blocks = config.max_blocks}),
      mixed(need_policy(config.policy, config, 0)),
      prefill(need_policy(config.prefill_policy, config, 1)),
      decode(need_policy(config.decode_policy, config, 2)) {
  for (const Instance& instance : config.backends) {
    if (const Status fits = registry.check(instance); !fits)
      throw LoadError(fmt::format("--backends {}: {}", instance.url(), fits.error().what));
    if (const auto put = registry.put(instance, /*fixed=*/true, Clock::now()); !put)
      throw LoadError(put.error().what);
  }
}

std::shared_ptr<Backend> RouterCore::choose(Policy& policy, const Backends& usable,
                                            const Prompt& prompt) {
  const Backends backends = willing(usable, Clock::now());
  std::vector<Candidate> candidates(backends.size());
  const auto blocks = static_cast<int64_t>(prompt.blocks.size());
  for (size_t i = 0; i < backends.size(); ++i) {
    candidates[i].load = backends[i]->load;
    if (blocks > 0 && policy.wants_cached())
      candidates[i].cached =
          prompt.tokens * static_cast<int64_t>(backends[i]->prefixes.match(prompt.blocks)) / blocks;
  }
  const size_t chosen = policy.choose(candidates, prompt.tokens);
  metrics.prompt_tokens += prompt.tokens;
  metrics.cached_tokens += candidates[chosen].cached;
  if (policy.wants_cached()) backends[chosen]->prefixes.add(prompt.blocks);
  ++backends[chosen]->requests;
  return backends[chosen];
}

http::HttpResponse refusal(int status, const std::string& why) {
  http::ApiError error = http::api_error(status, why);
  if (status == 503 || status == 429) error = http::retry_later(std::move(error), kRetrySeconds);
  return http::error_response(error);
}

}  // namespace skiff::route

// Cached tokens by policy: replays a trace with prefix hashes against replicas whose own caches
// are bounded, and prints which part of all prompt tokens each policy finds cached, how evenly it
// spreads the work, and how long prompts wait. Time is simulated: a replica computes prompt tokens
// at a fixed rate, one prompt after another, and a request runs for its output at a fixed rate.
//   bench_prefix_hits TRACE.jsonl [REPLICAS] [CACHE_TOKENS] [PROMPT_TOKENS_PER_S] [SPEEDUP]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <queue>
#include <vector>

#include "route/policy.h"
#include "route/prefix_cache.h"
#include "workload/trace.h"

namespace skiff::bench {
namespace {

constexpr int kBlock = workload::Trace::kBlockTokens;
constexpr double kSecondsPerOutput = 0.03;
// The router's image of a replica may differ from its cache: it holds names of 64 tokens of bytes
// and is not told of evictions. Here both have blocks of the trace; the image has 4 times as many.
constexpr size_t kImage = 4;

struct Replica {
  Replica(size_t blocks) : cache(blocks), image(kImage * blocks) {}
  route::PrefixCache cache, image;
  route::Load load;
  double free_at = 0;  // when its prompts are computed
  int64_t computed = 0;
};

struct Change {
  double at;
  std::function<void()> apply;
  bool operator<(const Change& other) const { return at > other.at; }
};

struct Outcome {
  double hits, imbalance, wait_p50, wait_p99;
};

Outcome replay(const workload::Trace& trace, std::string_view name, int replicas, size_t blocks,
               double rate, double speedup) {
  const auto policy = std::move(*route::make_policy(name, {}, 1));
  std::vector<Replica> all(static_cast<size_t>(replicas), Replica(blocks));
  std::priority_queue<Change> changes;
  std::vector<double> waits;
  int64_t prompt = 0, hit = 0;
  for (const workload::TracedRequest& request : trace.requests) {
    const double now = request.at / speedup;
    for (; !changes.empty() && changes.top().at <= now; changes.pop()) changes.top().apply();
    const auto cached = [&](const route::PrefixCache& cache) {
      return std::min<int64_t>(request.input,
                               static_cast<int64_t>(cache.match(request.hashes)) * kBlock);
    };
    std::vector<route::Candidate> candidates;
    for (const Replica& replica : all) candidates.push_back({replica.load, cached(replica.image)});
    Replica& replica = all[policy->choose(candidates, request.input)];
    replica.image.add(request.hashes);
    const int64_t found = cached(replica.cache), fresh = request.input - found;
    replica.cache.add(request.hashes);
    prompt += request.input;
    hit += found;
    replica.computed += fresh;
    replica.free_at = std::max(replica.free_at, now) + static_cast<double>(fresh) / rate;
    waits.push_back(replica.free_at - now);
    ++replica.load.running;
    replica.load.tokens += request.input;
    replica.load.waiting += request.input;
    const int64_t tokens = request.input;
    changes.push({replica.free_at, [&replica, tokens] { replica.load.waiting -= tokens; }});
    changes.push({replica.free_at + request.output * kSecondsPerOutput, [&replica, tokens] {
                    --replica.load.running;
                    replica.load.tokens -= tokens;
                  }});
  }
  int64_t most = 0, sum = 0;
  for (const Replica& replica : all) {
    most = std::max(most, replica.computed);
    sum += replica.computed;
  }
  std::sort(waits.begin(), waits.end());
  return {static_cast<double>(hit) / static_cast<double>(prompt),
          static_cast<double>(most) * replicas / static_cast<double>(sum), waits[waits.size() / 2],
          waits[waits.size() * 99 / 100]};
}

int run(int argc, char** argv) {
  const auto number = [&](int index, double fallback) {
    return argc > index ? std::atof(argv[index]) : fallback;
  };
  const workload::Trace trace = workload::read_trace(argv[1]);
  const int replicas = static_cast<int>(number(2, 8));
  const double cache = number(3, 500'000), rate = number(4, 20'000), speedup = number(5, 1);
  fmt::print(
      "{}: {} requests, {} replicas with caches of {:.0f} tokens, {:.0f} prompt tokens/s "
      "each, the trace {}x as fast\n",
      argv[1], trace.requests.size(), replicas, cache, rate, speedup);
  double random = 0;
  for (const char* name : {"random", "round_robin", "power_of_two", "process_tokens", "request_num",
                           "cache_aware", "prefix"}) {
    const Outcome outcome =
        replay(trace, name, replicas, static_cast<size_t>(cache / kBlock), rate, speedup);
    if (random == 0) random = outcome.hits;
    fmt::print(
        "{:<16} cached {:5.1f} %  ({:4.2f}x random)  most computed {:4.2f}x the mean  "
        "first token p50 {:7.3f} s p99 {:7.3f} s\n",
        name, 100 * outcome.hits, outcome.hits / random, outcome.imbalance, outcome.wait_p50,
        outcome.wait_p99);
  }
  return 0;
}

}  // namespace
}  // namespace skiff::bench

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr,
               "bench_prefix_hits TRACE.jsonl [REPLICAS] [CACHE_TOKENS] [RATE] [SPEEDUP]\n");
    return 2;
  }
  return skiff::bench::run(argc, argv);
}

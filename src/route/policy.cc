#include "route/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <random>

#include "route/prefix_policy.h"

namespace skiff::route {
namespace {

using Candidates = std::span<const Candidate>;

class RandomPolicy : public Policy {
 public:
  RandomPolicy(const PolicySettings&, uint64_t seed) : random_(seed) {}
  size_t choose(Candidates candidates, int64_t) override { return random_() % candidates.size(); }

 private:
  std::mt19937_64 random_;
};

class RoundRobinPolicy : public Policy {
 public:
  RoundRobinPolicy(const PolicySettings&, uint64_t) {}
  size_t choose(Candidates candidates, int64_t) override { return next_++ % candidates.size(); }

 private:
  size_t next_ = 0;
};

class PowerOfTwoPolicy : public Policy {
 public:
  PowerOfTwoPolicy(const PolicySettings&, uint64_t seed) : random_(seed) {}
  size_t choose(Candidates candidates, int64_t) override {
    const size_t one = random_() % candidates.size(), other = random_() % candidates.size();
    return candidates[other].load.running < candidates[one].load.running ? other : one;
  }

 private:
  std::mt19937_64 random_;
};

// Takes the candidate with the least of some number; equal ones take turns.
class LeastPolicy : public Policy {
 public:
  using Number = double (*)(const Load&);
  explicit LeastPolicy(Number number) : number_(number) {}
  size_t choose(Candidates candidates, int64_t) override {
    size_t best = ++turn_ % candidates.size();
    for (size_t i = 0; i < candidates.size(); ++i)
      if (number_(candidates[i].load) < number_(candidates[best].load)) best = i;
    return best;
  }

 private:
  const Number number_;
  size_t turn_ = 0;
};

double prompt_tokens(const Load& load) { return static_cast<double>(load.tokens); }
double requests(const Load& load) { return load.running; }
// What was sent since the report counts as running, so that not all of it goes to one backend.
double metrics_score(const Load& load) {
  return load.reported + static_cast<double>(load.sent - load.sent_before);
}

class ProcessTokensPolicy : public LeastPolicy {
 public:
  ProcessTokensPolicy(const PolicySettings&, uint64_t) : LeastPolicy(prompt_tokens) {}
};

class RequestNumPolicy : public LeastPolicy {
 public:
  RequestNumPolicy(const PolicySettings&, uint64_t) : LeastPolicy(requests) {}
};

// Where one of the candidates has told nothing, the router's own counts stand for all: beside a
// report, which knows what waits and what others have sent, such a count is always too small.
class MetricsScorePolicy : public Policy {
 public:
  MetricsScorePolicy(const PolicySettings&, uint64_t)
      : by_metrics_(metrics_score), by_requests_(requests) {}
  bool wants_reported() const override { return true; }
  size_t choose(Candidates candidates, int64_t tokens) override {
    const bool all = std::ranges::all_of(
        candidates, [](const Candidate& one) { return one.load.reported >= 0; });
    return (all ? by_metrics_ : by_requests_).choose(candidates, tokens);
  }

 private:
  LeastPolicy by_metrics_, by_requests_;
};

// (1 - cached part) x hit_ratio_weight + load / greatest load x load_balance_weight; the least
// prompt tokens where the loads differ too much.
class CacheAwarePolicy : public Policy {
 public:
  CacheAwarePolicy(const PolicySettings& settings, uint64_t)
      : settings_(settings), balance_(prompt_tokens) {}
  bool wants_cached() const override { return true; }
  size_t choose(Candidates candidates, int64_t tokens) override {
    const auto [least, most] = std::minmax_element(
        candidates.begin(), candidates.end(),
        [](const Candidate& a, const Candidate& b) { return a.load.running < b.load.running; });
    const int gap = most->load.running - least->load.running;
    if (gap > settings_.balance_abs_threshold &&
        gap > settings_.balance_rel_threshold * most->load.running)
      return balance_.choose(candidates, tokens);
    size_t best = ++turn_ % candidates.size();
    const double top = std::max(1, most->load.running);
    const auto score = [&](const Candidate& candidate) {
      const double hit =
          static_cast<double>(candidate.cached) / static_cast<double>(std::max<int64_t>(1, tokens));
      return (1 - hit) * settings_.hit_ratio_weight +
             candidate.load.running / top * settings_.load_balance_weight;
    };
    for (size_t i = 0; i < candidates.size(); ++i)
      if (score(candidates[i]) < score(candidates[best])) best = i;
    return best;
  }

 private:
  const PolicySettings settings_;
  LeastPolicy balance_;
  size_t turn_ = 0;
};

template <class Kind>
std::unique_ptr<Policy> make(const PolicySettings& settings, uint64_t seed) {
  return std::make_unique<Kind>(settings, seed);
}

struct Row {
  std::string_view name;
  std::unique_ptr<Policy> (*make)(const PolicySettings&, uint64_t);
};

constexpr Row kPolicies[] = {
    {"prefix", make<PrefixPolicy>},           {"cache_aware", make<CacheAwarePolicy>},
    {"random", make<RandomPolicy>},           {"round_robin", make<RoundRobinPolicy>},
    {"power_of_two", make<PowerOfTwoPolicy>}, {"process_tokens", make<ProcessTokensPolicy>},
    {"request_num", make<RequestNumPolicy>},  {"fd_metrics_score", make<MetricsScorePolicy>},
};

}  // namespace

std::vector<std::string_view> policy_names() {
  std::vector<std::string_view> names;
  for (const Row& row : kPolicies) names.push_back(row.name);
  return names;
}

Result<std::unique_ptr<Policy>> make_policy(std::string_view name, const PolicySettings& settings,
                                            uint64_t seed) {
  for (const Row& row : kPolicies)
    if (row.name == name) return row.make(settings, seed);
  std::string names;
  for (const std::string_view one : policy_names()) names.append(" ").append(one);
  return Error{Code::kInvalid, fmt::format("there is no policy \"{}\"; there are{}", name, names),
               "policy"};
}

}  // namespace skiff::route

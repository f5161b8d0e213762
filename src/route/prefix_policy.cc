#include "route/prefix_policy.h"

#include <algorithm>
#include <numeric>

namespace skiff::route {
namespace {

// Backends whose prefix is this part of the longest one hold it, too.
constexpr double kNearly = 0.9;

}  // namespace

double PrefixPolicy::cost(const Candidate& candidate, int64_t tokens) const {
  return static_cast<double>(candidate.load.waiting + tokens - candidate.cached) +
         settings_.request_tokens * candidate.load.running;
}

bool PrefixPolicy::overloaded(std::span<const Candidate> candidates, size_t index) const {
  const auto load = [this](const Candidate& candidate) {
    return static_cast<double>(candidate.load.waiting) +
           settings_.request_tokens * candidate.load.running;
  };
  double sum = 0;
  for (const Candidate& candidate : candidates) sum += load(candidate);
  const double mean = sum / static_cast<double>(candidates.size());
  return load(candidates[index]) >
         settings_.max_imbalance * mean + settings_.imbalance_slack * settings_.request_tokens;
}

size_t PrefixPolicy::better_of_two(std::span<const Candidate> candidates,
                                   std::span<const size_t> among, int64_t tokens) {
  const size_t one = among[random_() % among.size()];
  const size_t other = among[random_() % among.size()];
  return cost(candidates[other], tokens) < cost(candidates[one], tokens) ? other : one;
}

size_t PrefixPolicy::choose(std::span<const Candidate> candidates, int64_t tokens) {
  int64_t longest = 0;
  for (const Candidate& candidate : candidates) longest = std::max(longest, candidate.cached);
  std::vector<size_t> among;
  if (longest > 0) {
    for (size_t i = 0; i < candidates.size(); ++i)
      if (static_cast<double>(candidates[i].cached) >= kNearly * static_cast<double>(longest))
        among.push_back(i);
    const size_t holder = better_of_two(candidates, among, tokens);
    if (!overloaded(candidates, holder)) return holder;
  }
  among.resize(candidates.size());
  std::iota(among.begin(), among.end(), size_t{0});
  return better_of_two(candidates, among, tokens);
}

}  // namespace skiff::route

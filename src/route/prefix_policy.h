// route/prefix_policy.h -- the default policy: to a backend that holds the prompt's prefix, unless
// that one has too much to do.
#pragma once
#include <random>

#include "route/policy.h"

namespace skiff::route {

// Among the backends that hold nearly the longest prefix, two are drawn and the one that would
// begin to answer sooner is taken: by prompt tokens that wait, its own that are not cached, and
// request_tokens for each running request. Where that one has more than its share of all
// load (max_imbalance, imbalance_slack), or nobody holds anything, two of all are drawn instead
// (Mitzenmacher, The Power of Two Choices in Randomized Load Balancing, 1996), so a backend that
// has just come gets no more than two shares.
class PrefixPolicy : public Policy {
 public:
  PrefixPolicy(const PolicySettings& settings, uint64_t seed)
      : settings_(settings), random_(seed) {}
  size_t choose(std::span<const Candidate> candidates, int64_t tokens) override;
  bool wants_cached() const override { return true; }

 private:
  double cost(const Candidate& candidate, int64_t tokens) const;
  bool overloaded(std::span<const Candidate> candidates, size_t index) const;
  size_t better_of_two(std::span<const Candidate> candidates, std::span<const size_t> among,
                       int64_t tokens);
  const PolicySettings settings_;
  std::mt19937_64 random_;
};

}  // namespace skiff::route

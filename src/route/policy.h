// route/policy.h -- which of several backends gets a request. A policy sees numbers only and reads
// no clock; the same seed gives the same choices.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace skiff::route {

// The work that this router has sent to a backend and that is not done.
struct Load {
  int running = 0;          // requests under way
  int64_t tokens = 0;       // tokens of their prompts
  int64_t waiting = 0;      // prompt tokens of those that have not begun to answer
  double reported = -1;     // running + 10 x waiting by the backend's metrics; negative: unknown
  int64_t sent = 0;         // requests that the backend was ever given
  int64_t sent_before = 0;  // `sent` when the metrics behind `reported` were asked for
};

struct Candidate {
  Load load;
  int64_t cached = 0;  // prompt tokens that it has seen lately; 0 unless wants_cached()
};

struct PolicySettings {
  double hit_ratio_weight = 1.0;      // cache_aware: weight of the part that is not cached
  double load_balance_weight = 0.05;  // cache_aware: weight of the load beside the greatest
  // cache_aware: beyond both of these differences of load only the load counts.
  int balance_abs_threshold = 1;
  double balance_rel_threshold = 0.2;
  double request_tokens = 256;  // prefix: a running request weighs as much as these prompt tokens
  double max_imbalance = 1.5;   // prefix: a holder may have this many times the mean load, ...
  double imbalance_slack = 4;   // ... and as many requests more
};

class Policy {
 public:
  virtual ~Policy() = default;
  // Returns the index of one of the candidates, of which there is at least one, for a prompt of
  // so many tokens.
  virtual size_t choose(std::span<const Candidate> candidates, int64_t tokens) = 0;
  // Return true if the policy looks at Candidate::cached, or at Load::reported.
  virtual bool wants_cached() const { return false; }
  virtual bool wants_reported() const { return false; }
};

// Makes the policy of that name. For a name that there is not, the error lists those there are.
Result<std::unique_ptr<Policy>> make_policy(std::string_view name, const PolicySettings& settings,
                                            uint64_t seed);
std::vector<std::string_view> policy_names();

}  // namespace skiff::route

// engine/late_ops_testing.h -- for tests: a backend whose copies beside other operations come as
// late as they may.
#pragma once
#include <deque>
#include <utility>
#include <vector>

#include "ops/reference/reference_ops.h"

namespace skiff::engine {

class LateOps : public reference::ReferenceOps {
 public:
  CopiesBeside copy_beside(std::span<const Arrival> copies) override {
    late_.push_back({++number_, {copies.begin(), copies.end()}});
    ++begun;
    const uint64_t now = stamp();
    return {.number = number_, .begin = now, .end = now};
  }
  void after(uint64_t number) override { carry_out(number); }
  void wait_copies(uint64_t number) override { carry_out(number); }
  int begun = 0;  // how often copies were begun

 private:
  void carry_out(uint64_t number) {
    for (; !late_.empty() && late_.front().first <= number; late_.pop_front())
      for (const Arrival& each : late_.front().second) copy(each.to, each.from);
  }
  std::deque<std::pair<uint64_t, std::vector<Arrival>>> late_;
  uint64_t number_ = 0;
};

}  // namespace skiff::engine

// engine/step_tally.h -- the time and the number of rows of every step, as histograms that are
// cheap enough to update in each one.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

namespace skiff::engine {

// Counts of values up to each bound, and of values above the last.
template <size_t N>
class Tally {
 public:
  constexpr explicit Tally(const std::array<double, N>& bounds) : bounds_(bounds) {}
  void add(double value) {
    const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value);
    ++counts_[static_cast<size_t>(at - bounds_.begin())];
    sum_ += value;
  }
  Tally& operator+=(const Tally& other) {  // requires equal bounds
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    sum_ += other.sum_;
    return *this;
  }
  std::span<const double> bounds() const { return bounds_; }
  std::span<const uint64_t> counts() const { return counts_; }  // N + 1 counts, not cumulative
  double sum() const { return sum_; }

 private:
  std::array<double, N> bounds_;
  std::array<uint64_t, N + 1> counts_{};
  double sum_ = 0;
};

inline constexpr std::array kStepSeconds{1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3,
                                         .01,  .025,   .05,  .1,   .25,    .5,   1.,   2.5,    10.};
inline constexpr std::array kStepRows{1.,   2.,   4.,    8.,    16.,   32.,   64.,   128.,
                                      256., 512., 1024., 2048., 4096., 8192., 16384.};

// Sums over steps of one kind, in seconds.
struct StepSums {
  uint64_t steps = 0;
  double plan = 0, launch = 0, wait = 0, commit = 0;
  StepSums operator-(const StepSums& then) const {
    return {steps - then.steps, plan - then.plan, launch - then.launch, wait - then.wait,
            commit - then.commit};
  }
  StepSums& operator+=(const StepSums& other) {
    steps += other.steps;
    plan += other.plan;
    launch += other.launch;
    wait += other.wait;
    commit += other.commit;
    return *this;
  }
};

// The engine thread's time in one step: planning it, launching it, waiting for it, and committing
// its result. The time that the device computes while the next step is planned is not included:
// such a step is waited for less.
struct StepTally {
  Tally<kStepSeconds.size()> plan{kStepSeconds}, launch{kStepSeconds}, wait{kStepSeconds},
      commit{kStepSeconds};
  Tally<kStepRows.size()> rows{kStepRows};
  // `decodes`: steps in which every sequence has one row and samples; `checks`: those in which some
  // have drafts behind it.
  StepSums decodes, checks, others;

  StepTally& operator+=(const StepTally& other) {
    plan += other.plan;
    launch += other.launch;
    wait += other.wait;
    commit += other.commit;
    rows += other.rows;
    decodes += other.decodes;
    checks += other.checks;
    others += other.others;
    return *this;
  }
};

}  // namespace skiff::engine

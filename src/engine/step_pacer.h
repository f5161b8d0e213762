// engine/step_pacer.h -- when the next step is planned while one computes: as late as may be
// without the device ever waiting for it, so that requests which arrive meanwhile take part in it.
// A value; it reads no clock.
#pragma once
#include <array>
#include <chrono>
#include <deque>

#include "sched/step_cost.h"

namespace skiff::engine {

// A step that is planned as soon as the one before it begins makes every arrival wait for one step
// more than it must. So planning waits until the rest of the running step is about as long as the
// host's work takes, with a margin, and at least kLead of the step.
//
// How long the running step takes is expected by the measured curve, times a factor that is learned
// for decode steps and for others: it falls at once where a step was shorter, and rises slowly.
class StepPacer {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr double kLead = 0.2;

  // Without a known cost every step is planned at once.
  explicit StepPacer(sched::StepCost cost = {}) : cost_(std::move(cost)) {}

  // Reports that a step was launched, whose planning began at `begin`.
  void launched(const StepPlan& plan, Time begin, Time end);
  // Reports that the step launched last shares its time with one that computes so many rows of
  // prompts elsewhere, and takes as long as the longer one.
  void beside(int prompt_rows);
  // Reports that the oldest step in flight was found to have ended at `end`; the host began to wait
  // for that at `begin`.
  void ended(Time begin, Time end);
  // Returns when the next step should be planned; a time that has passed means at once.
  Time plan_at() const;

 private:
  struct Flight {
    double expected = 0;  // seconds by the curve
    bool decodes = false;
    Time launched;
  };
  // The device begins a step once the step before it has ended.
  Time began(const Flight& flight) const { return std::max(flight.launched, ended_); }
  double& factor(const Flight& flight) { return factors_[flight.decodes ? 1 : 0]; }

  sched::StepCost cost_;
  std::deque<Flight> flying_;
  Time ended_{};                             // when the last step that has ended did so
  std::array<double, 2> factors_{0.5, 0.5};  // steps with prompts, decode steps
  double host_ = 0;  // seconds to plan and launch a step: rises at once, falls slowly
};

}  // namespace skiff::engine

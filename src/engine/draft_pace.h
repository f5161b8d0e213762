// engine/draft_pace.h -- behind which steps tokens are drafted: behind those where that has been
// measured to pay. A value; it reads no clock.
#pragma once
#include <array>
#include <map>

#include "message/step.h"

namespace skiff::engine {

// A model that drafts takes time in every step, and what its drafts save depends on the batch, the
// texts and the machine. So the tokens per second of steps with drafts and without are compared for
// each size of batch: what is usual there is interrupted by a trial of the other, and the better
// one is usual from then on. A trial is kTrial steps, and as many of the usual kind are measured
// before it. Between two trials lie so many steps that what a trial loses is kShare of their time,
// and up to eight times as many where the result has been the same again and again; but few until
// a result has been confirmed, since the first steps of a kind on a device may load kernels. Drafts
// whose steps have become slower than steps without were are tried anew at once.
//
// No decision changes a text: drafts decide only how many rows of it are computed together.
class DraftPace {
 public:
  static constexpr int kTrial = 6;
  static constexpr double kShare = 0.01;

  // Unless `weighs`, tokens are drafted behind every step: for drafts that cost no time.
  explicit DraftPace(bool weighs = false) : weighs_(weighs) {}

  bool weighs() const { return weighs_; }
  // Returns whether tokens are drafted behind a step.
  bool drafts(const StepPlan& plan) const;
  // Reports that a step has ended, `seconds` after the one before it or, if there was nothing to do
  // meanwhile, after it was planned. Steps are reported in the order of their plans.
  void committed(const StepPlan& plan, const StepResult& result, double seconds);

 private:
  // Steps of one kind and about as many sequences.
  struct Window {
    int sequences = 0;
    int steps = 0;
    double tokens = 0;
    std::array<double, kTrial> seconds{};
    void add(int count, double gained, double took);  // requires !full()
    bool full() const { return steps == kTrial; }
    double rate() const;  // tokens per second; requires full()
  };
  // What was measured; no sequences: nothing.
  struct Rate {
    int sequences = 0;
    double value = 0;
  };
  // A size of batch.
  struct Case {
    bool pays = true;  // drafts are usual
    bool trying = false;
    int rest = 0;    // steps until the next trial
    int agreed = 0;  // how often in a row a trial has confirmed what is usual
    Rate usual, other;
    Window running, trial;
  };
  const Case* find(int sequences) const;
  Case& case_of(int sequences);
  static void learn(Rate& rate, const Window& window);
  static void saw_usual(Case& c);
  static void decide(Case& c);

  bool weighs_;
  std::map<int, Case> cases_;  // by size of batch, see size_class()
  int steady_ = 0;             // steps in a row behind the same decision
  bool last_ = true;           // what the last step decided
};

}  // namespace skiff::engine

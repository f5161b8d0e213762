// sched/draft_length.h -- how many drafts of a sequence are worth checking. Values; included by
// this room only.
#pragma once
#include "sched/step_cost.h"

namespace skiff::sched {

// How likely a draft of one sequence is right if those before it are, learned from the text: each
// draft that the text confirms or refutes counts, checked or not, so that drafting starts again
// where it pays again.
class Acceptance {
 public:
  Acceptance() = default;
  explicit Acceptance(double rate) : rate_(rate) {}
  // The text has confirmed `right` drafts and, if that is less than `known`, refuted the next.
  void saw(int known, int right);
  double rate() const { return rate_; }
  // The expected number of right ones among the first `drafts`.
  double expected(int drafts) const;

 private:
  double rate_ = 0.5;
};

// The throughput of a step as drafts are added to it. A draft is worth its row while it adds more
// tokens for its time than the step gives without it, so that no sequence's drafts cost the others
// more than they gain. Where drafts are many and rows cheap they are all checked; in a batch that
// keeps the device busy, none is.
class DraftLength {
 public:
  // The step decodes `decodes` sequences in `seconds`. If `cost` is not known, drafts are checked
  // that are right with a probability of kLeastRate.
  DraftLength(const StepCost& cost, int decodes, double seconds)
      : cost_(cost), rows_(decodes), tokens_(decodes), seconds_(seconds) {}
  // Returns how many of `most` drafts to check behind `begin` positions.
  int length(const Acceptance& acceptance, int begin, int most) const;
  // Counts drafts that are going to be checked.
  void add(const Acceptance& acceptance, int begin, int drafts);

  static constexpr double kLeastRate = 0.2;

 private:
  double seconds_of(int begin, int before) const;

  const StepCost& cost_;
  int rows_;
  double tokens_, seconds_;
};

}  // namespace skiff::sched

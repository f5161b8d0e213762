#include "sched/draft_length.h"

#include <algorithm>

namespace skiff::sched {
namespace {

constexpr double kLearned = 1.0 / 6;  // what one draft changes of the estimate
constexpr double kLeast = 0.02, kMost = 0.98;
// The factor by which a draft must be worth more than its row costs, because acceptance changes
// with the text.
constexpr double kMargin = 1.1;

}  // namespace

void Acceptance::saw(int known, int right) {
  for (int i = 0; i < right; ++i) rate_ += kLearned * (1 - rate_);
  if (right < known) rate_ -= kLearned * rate_;
  rate_ = std::clamp(rate_, kLeast, kMost);
}

double Acceptance::expected(int drafts) const {
  double sum = 0, chance = 1;
  for (int i = 0; i < drafts; ++i) sum += chance *= rate_;
  return sum;
}

// Returns what the row of one more draft takes, where `before` drafts of its sequence and the draws
// of all sequences are in the step.
double DraftLength::seconds_of(int begin, int before) const {
  const int rows = rows_ + before;
  return cost_.seconds(rows + 1) - cost_.seconds(rows) + cost_.attention(begin, before + 2) -
         cost_.attention(begin, before + 1);
}

int DraftLength::length(const Acceptance& acceptance, int begin, int most) const {
  double chance = 1, tokens = tokens_, seconds = seconds_;
  for (int drafts = 0; drafts < most; ++drafts) {
    chance *= acceptance.rate();
    if (!cost_.known()) {
      if (chance < kLeastRate) return drafts;
      continue;
    }
    const double takes = seconds_of(begin, drafts);
    if (chance * seconds < kMargin * takes * tokens) return drafts;
    tokens += chance;
    seconds += takes;
  }
  return std::max(0, most);
}

void DraftLength::add(const Acceptance& acceptance, int begin, int drafts) {
  if (!cost_.known() || drafts == 0) return;
  for (int i = 0; i < drafts; ++i) seconds_ += seconds_of(begin, i);
  tokens_ += acceptance.expected(drafts);
  rows_ += drafts;
}

}  // namespace skiff::sched

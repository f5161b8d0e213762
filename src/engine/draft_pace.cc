#include "engine/draft_pace.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <utility>

namespace skiff::engine {
namespace {

// Steps behind a change of the decision that are not measured: drafts of the first are checked in
// the second, and two steps may be in flight.
constexpr int kSettle = 2;
// The factors by which the rate of the other kind must be better before it becomes the usual one:
// to steps with drafts, and back.
constexpr double kBetterWith = 1.02, kBetterWithout = 1.005;
// Drafts whose rate is below this part of the rate without drafts are tried anew at once.
constexpr double kWorse = 0.98;
constexpr int kLeastRest = 64, kMostRest = 4096, kMostAgreed = 3;
constexpr double kLearned = 0.4;  // the weight of the last window
// A step that took longer than this many times the middle one counts as long as that: something
// else had the machine.
constexpr double kOutlier = 2;

// Sizes of one class differ by less than a third: 1, 2, 3, 4, 5-6, 7-8, 9-12, 13-16, ...
int size_class(int sequences) {
  const int last = std::max(sequences, 1) - 1;
  if (last < 2) return last;
  const int octave = std::bit_width(static_cast<unsigned>(last)) - 1;
  return 2 * octave + ((last >> (octave - 1)) & 1);
}

// Rates of so many sequences are compared: of many, one may have ended.
bool alike(int a, int b) { return std::abs(a - b) <= b / 16; }

int drawing(const StepPlan& plan) {
  return static_cast<int>(std::ranges::count_if(plan.spans, &Span::sample));
}

bool only_draws(const StepPlan& plan) {
  return !plan.spans.empty() && std::ranges::all_of(plan.spans, [](const Span& span) {
    return span.sample && span.count == 1 + span.draft;
  });
}

}  // namespace

void DraftPace::Window::add(int count, double gained, double took) {
  if (steps == 0 || !alike(count, sequences)) *this = {.sequences = count};
  tokens += gained;
  seconds[static_cast<size_t>(steps++)] = took;
}

double DraftPace::Window::rate() const {
  std::array<double, kTrial> sorted = seconds;
  std::ranges::sort(sorted);
  const double most = kOutlier * sorted[sorted.size() / 2];
  double sum = 0;
  for (const double took : sorted) sum += std::min(took, most);
  return tokens / std::max(sum, 1e-9);
}

// What is usual for a size that has not been seen is that of the next smaller one, or else of the
// next larger one.
DraftPace::Case& DraftPace::case_of(int sequences) {
  const Case* like = find(sequences);
  const bool pays = like == nullptr || like->pays;
  const auto [at, is_new] = cases_.try_emplace(size_class(sequences));
  if (is_new) at->second.pays = pays;
  return at->second;
}

const DraftPace::Case* DraftPace::find(int sequences) const {
  if (cases_.empty()) return nullptr;
  const auto above = cases_.upper_bound(size_class(sequences));
  return &(above == cases_.begin() ? above : std::prev(above))->second;
}

bool DraftPace::drafts(const StepPlan& plan) const {
  if (!weighs_) return true;
  const int sequences = drawing(plan);
  const Case* c = find(sequences);
  if (c == nullptr) return true;
  const auto own = cases_.find(size_class(sequences));
  const bool tries = own != cases_.end() && c->trying && alike(sequences, c->usual.sequences);
  return tries != c->pays;
}

void DraftPace::committed(const StepPlan& plan, const StepResult& result, double seconds) {
  if (!weighs_ || plan.spans.empty()) return;
  steady_ = plan.drafts == last_ ? steady_ + 1 : 0;
  last_ = plan.drafts;
  if (!only_draws(plan)) return;
  const int sequences = drawing(plan);
  Case& c = case_of(sequences);
  const bool usual = plan.drafts == c.pays;
  if (usual && !c.trying) --c.rest;
  if (steady_ < kSettle) return;
  double tokens = 0;
  for (const auto& gained : result.tokens) tokens += static_cast<double>(gained.size());
  if (usual) {
    c.running.add(sequences, tokens, seconds);
    if (c.running.full()) saw_usual(c);
  } else if (c.trying && alike(sequences, c.usual.sequences)) {
    c.trial.add(sequences, tokens, seconds);
    if (c.trial.full()) decide(c);
  }
}

// Adds a window to what is known of as many sequences.
void DraftPace::learn(Rate& rate, const Window& window) {
  const bool known = rate.sequences > 0 && alike(window.sequences, rate.sequences);
  rate.value = known ? rate.value + kLearned * (window.rate() - rate.value) : window.rate();
  rate.sequences = window.sequences;
}

// While a trial waits for as many sequences as were measured, others may be measured instead.
void DraftPace::saw_usual(Case& c) {
  learn(c.usual, c.running);
  c.running = {};
  c.trial = {};
  const bool worse = c.pays && alike(c.other.sequences, c.usual.sequences) &&
                     c.usual.value < kWorse * c.other.value;
  c.trying |= c.rest <= 0 || worse;
}

void DraftPace::decide(Case& c) {
  learn(c.other, c.trial);
  c.trying = false;
  c.running = c.trial = {};
  const bool changes = c.other.value > (c.pays ? kBetterWithout : kBetterWith) * c.usual.value;
  if (changes) {
    std::swap(c.usual, c.other);
    c.pays = !c.pays;
    c.agreed = 0;
  }
  const double lost = (kTrial + kSettle) * (c.usual.value / c.other.value - 1);
  const double most = std::min(kMostRest, kLeastRest << (2 * c.agreed));
  c.rest = static_cast<int>(std::clamp(lost / kShare, 1. * kLeastRest, most));
  c.rest <<= c.agreed;
  c.agreed = std::min(c.agreed + 1, kMostAgreed);
}

}  // namespace skiff::engine

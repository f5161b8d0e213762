#include "quantize/quality.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace skiff::quantize {
namespace {

// log(sum(exp(x)))
double log_total(const float* x, int64_t n) {
  const double best = *std::max_element(x, x + n);
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += std::exp(static_cast<double>(x[i]) - best);
  return best + std::log(total);
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

}  // namespace

void QualityMeter::add(const float* before, const float* after, int64_t vocab, int32_t next) {
  const double p_total = log_total(before, vocab), q_total = log_total(after, vocab);
  double divergence = 0;
  for (int64_t i = 0; i < vocab; ++i) {
    const double p = static_cast<double>(before[i]) - p_total;
    divergence += std::exp(p) * (p - (static_cast<double>(after[i]) - q_total));
  }
  divergence_.push_back(std::max(0.0, divergence));
  before_.push_back(static_cast<double>(before[next]) - p_total);
  after_.push_back(static_cast<double>(after[next]) - q_total);
  same_ += std::max_element(before, before + vocab) - before ==
                   std::max_element(after, after + vocab) - after
               ? 1
               : 0;
}

Quality QualityMeter::result() const {
  const size_t n = divergence_.size();
  SKIFF_CHECK(n > 1, "{} rows", n);
  Quality out{.tokens = static_cast<int64_t>(n)};
  out.kl = mean(divergence_);
  std::vector<double> sorted = divergence_;
  std::ranges::sort(sorted);
  out.kl_999 = sorted[static_cast<size_t>(0.999 * static_cast<double>(n - 1))];
  out.agreement = static_cast<double>(same_) / static_cast<double>(n);
  out.perplexity_before = std::exp(-mean(before_));
  out.perplexity_after = std::exp(-mean(after_));
  out.log_change = mean(before_) - mean(after_);
  double squares = 0;
  for (size_t i = 0; i < n; ++i) squares += std::pow(before_[i] - after_[i] - out.log_change, 2);
  out.log_change_error = std::sqrt(squares / (static_cast<double>(n) * static_cast<double>(n - 1)));
  return out;
}

}  // namespace skiff::quantize

// quantize/quality.h -- what rounding changes in a model's predictions.
#pragma once
#include <cstdint>
#include <vector>

namespace skiff::quantize {

// Predictions of two models for the same tokens.
struct Quality {
  int64_t tokens = 0;
  double kl = 0, kl_999 = 0;  // divergence: its mean, and what 99.9 % of tokens stay below
  double agreement = 0;       // share of tokens whose most likely choice is the same
  // Perplexities, and the difference of their logarithms with its paired standard error.
  double perplexity_before = 0, perplexity_after = 0, log_change = 0, log_change_error = 0;
};

class QualityMeter {
 public:
  // Logits of one row of the model as it was and as it is, and the token that follows.
  void add(const float* before, const float* after, int64_t vocab, int32_t next);
  Quality result() const;  // needs at least two rows

 private:
  std::vector<double> divergence_, before_, after_;  // log-probabilities of the next token
  int64_t same_ = 0;
};

}  // namespace skiff::quantize

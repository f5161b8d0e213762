// quantize/fold.h -- factors of input channels that make weights easier to round: weights are
// multiplied by them, and what produces the inputs is divided by them, so that the layer computes
// the same until it is rounded.
#pragma once
#include <optional>
#include <vector>

#include "quantize/grid.h"
#include "quantize/moments.h"

namespace skiff::quantize {

// A weight [out, in] whose input channels get factors.
struct FoldConsumer {
  const Matrix* weight = nullptr;
  Matrix inputs;  // [tokens, in], a sample
  WeightFormat format;
};

struct FoldProblem {
  std::vector<FoldConsumer> consumers;  // all read the same `in`
  std::optional<InputFormat> input;     // how activations are rounded
  // The class of each channel; channels of one class must have one factor. Empty: all may differ.
  std::vector<int32_t> classes;
  // Factors are powers of two: what is divided by them is stored in 16 bits and must stay exact.
  bool powers = false;
};

struct FoldChoice {
  std::vector<float> factors;     // [in], positive
  double error = 0, without = 0;  // sums of squared errors of the outputs, with and without factors
};

// The search of AWQ (Lin et al. 2023, arXiv 2306.00978): factors mean|x|^r, and mean|x|^r /
// mean|w|^ (1-r) with |w| relative to the largest of its block, for 20 ratios r; the choice has the
// least squared error of the outputs with weights rounded to nearest. No factors are a choice, too.
FoldChoice awq_factors(const FoldProblem& problem, Ops& ops, int threads);

// The factors of SmoothQuant (Xiao et al. 2022, arXiv 2211.10438), max|x|^a / max|w|^(1-a), with a
// searched for one to three pieces of the channels apart, as PaddleSlim's piecewise search does:
// the pieces are clusters of max|x|, taken by rising size; for each piece a rises from 0.2 to 0.8,
// then constants from 1 to 5 are tried. The choice has the least squared error of the outputs with
// weights and activations rounded. No factors are a choice, too.
FoldChoice smooth_factors(const FoldProblem& problem, Ops& ops, int threads);

// At most `most` rows of x, evenly spread.
Matrix sample_rows(const Matrix& x, int64_t most);

}  // namespace skiff::quantize

// quantize/gptq.h -- GPTQ (Frantar et al. 2022, arXiv 2210.17323): columns are rounded one after
// the other, and each rounding error is made up for by the columns that follow.
#pragma once
#include "quantize/grid.h"
#include "quantize/moments.h"

namespace skiff::quantize {

struct GptqOptions {
  double damping = 0.01;  // added to the diagonal of the moments, as a fraction of its mean
  bool act_order = true;  // columns in the order of falling second moment
  int refinements = 2;    // passes that then move single elements where that lowers the error
};

struct GptqResult {
  Rounded rounded;
  double damping = 0;        // as it was used: it is raised until the moments can be factored
  bool factored = true;      // false: they cannot; weights are rounded to nearest
  int64_t rows_nearest = 0;  // outputs for which rounding to nearest has the smaller error
};

// Rounds w [out, in] to `format`, whose blocks are single rows, with these steps (static groups).
// `moments` are those of the inputs. No output has a larger mean squared error on them than with
// rounding to nearest with the same steps. Inputs that were always zero have no effect.
GptqResult gptq(const Matrix& w, const WeightFormat& format, const std::vector<Step>& steps,
                const Square& moments, const GptqOptions& options, int threads);

// Steps of single rows with the least mean squared error of the block's part of the output:
// d * M * d^T over the block's own moments M, for d the error of rounding to nearest.
std::vector<Step> calibrated_steps(const Matrix& w, const WeightFormat& format,
                                   const Square& moments, int threads);

}  // namespace skiff::quantize

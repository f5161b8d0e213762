// quantize/cholesky.h -- the factor that GPTQ walks along.
#pragma once
#include <optional>

#include "quantize/moments.h"

namespace skiff::quantize {

// Returns the upper triangular U with U^T U = (m + damping * I)^-1, or nothing where m + damping *
// I is not positive definite to working precision. Blocks of columns are shared among threads, and
// every element is computed in one order.
std::optional<Square> inverse_factor(const Square& m, double damping, int threads);

}  // namespace skiff::quantize

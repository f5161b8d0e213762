// ops/reference/math.h -- the formulas that several operations share.
#pragma once
#include <span>

#include "arch/spec.h"
#include "weights/linear.h"

namespace skiff::reference {

double dot(std::span<const float> a, std::span<const float> b);
double activate(double x, Act act);
// x = x / sqrt(mean(x^2) + eps) * weight (Zhang, Sennrich 2019).
void rms_norm(std::span<float> x, const Norm& norm);
// Rotates the first rope.dim values of a head (Su et al. 2021) for a token at `position`.
void rotate(std::span<float> head, const Rope& rope, std::span<const float> speeds, int position);

}  // namespace skiff::reference

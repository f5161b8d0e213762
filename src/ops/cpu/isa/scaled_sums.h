// ops/cpu/isa/scaled_sums.h -- where a sum of codes' products becomes a part of the result.
#pragma once
#include "ops/cpu/isa/intrinsics.h"
#include "ops/cpu/isa/kernels.h"

namespace skiff::cpu {
namespace {

// Adds the sum `s` of one row and one panel, as ScaledSum says; `opens` says that it is the first.
inline void add_scaled(const CodeRows& g, const CodeSum& s, int64_t row, int64_t panel, __m512 sum,
                       bool opens) {
  const float number = g.values ? g.values[row * g.value_stride + s.value] : 1;
  const __m512 factor = _mm512_set1_ps(g.minimum ? -number : number);
  const int64_t at = (panel * g.groups + s.group - g.sums->group) * kPanel;
  __m512 v = _mm512_mul_ps(sum, _mm512_loadu_ps(g.scale + at));
  v = g.minimum ? _mm512_fmadd_ps(factor, _mm512_loadu_ps(g.minimum + at), v)
                : _mm512_mul_ps(v, factor);
  float* c = g.c + (row * g.panels + panel) * kPanel;
  _mm512_storeu_ps(c, opens ? v : _mm512_add_ps(_mm512_loadu_ps(c), v));
}

}  // namespace
}  // namespace skiff::cpu

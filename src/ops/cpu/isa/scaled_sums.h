// ops/cpu/isa/scaled_sums.h -- where a sum of codes' products becomes a part of the result.
#pragma once
#include "ops/cpu/isa/intrinsics.h"
#include "ops/cpu/isa/kernels.h"

namespace skiff::cpu {
namespace {

// What the sums of one panel are multiplied by: their scales, then a row's number, or that times
// the minima is taken away.
enum class Numbers : uint8_t { kNone, kScale, kSum };

template <Numbers kNumbers, bool kOpens, class Sum>
void add_scaled_rows(const CodeRows& g, const CodeSum& s, int64_t row, int64_t rows, int64_t panel,
                     Sum sum) {
  const int64_t at = (panel * g.groups + s.group - g.sums->group) * kPanel;
  const __m512 scale = _mm512_loadu_ps(g.scale + at);
  const __m512 minimum = _mm512_loadu_ps(kNumbers == Numbers::kSum ? g.minimum + at : g.scale);
  float* c = g.c + row * g.ldc + panel * kPanel;
  for (int64_t r = 0; r < rows; ++r, c += g.ldc) {
    __m512 v = _mm512_mul_ps(sum(r), scale);
    if constexpr (kNumbers != Numbers::kNone) {
      const __m512 number = _mm512_set1_ps(g.values[(row + r) * g.value_stride + s.value]);
      v = kNumbers == Numbers::kSum ? _mm512_fnmadd_ps(number, minimum, v)
                                    : _mm512_mul_ps(v, number);
    }
    _mm512_storeu_ps(c, kOpens ? v : _mm512_add_ps(_mm512_loadu_ps(c), v));
  }
}

// Adds the sums `s` of some rows and one panel, as ScaledSum says: sum(r) is that of row `row` + r;
// `opens` says that they are the first.
template <class Sum>
void add_scaled(const CodeRows& g, const CodeSum& s, int64_t row, int64_t rows, int64_t panel,
                bool opens, Sum sum) {
  using enum Numbers;
  if (g.minimum)
    return opens ? add_scaled_rows<kSum, true>(g, s, row, rows, panel, sum)
                 : add_scaled_rows<kSum, false>(g, s, row, rows, panel, sum);
  if (g.values)
    return opens ? add_scaled_rows<kScale, true>(g, s, row, rows, panel, sum)
                 : add_scaled_rows<kScale, false>(g, s, row, rows, panel, sum);
  opens ? add_scaled_rows<kNone, true>(g, s, row, rows, panel, sum)
        : add_scaled_rows<kNone, false>(g, s, row, rows, panel, sum);
}

// Adds the scaled sums of one row, `row`.
inline void add_scaled(const CodeRows& g, const CodeSum& s, int64_t row, int64_t panel, __m512 sum,
                       bool opens) {
  add_scaled(g, s, row, 1, panel, opens, [&](int64_t) { return sum; });
}

}  // namespace
}  // namespace skiff::cpu

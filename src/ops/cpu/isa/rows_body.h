// ops/cpu/isa/rows_body.h -- loops along one row, for any vector type. Include after one
// vec_<isa>.h.
#pragma once
#include "ops/cpu/isa/kernels.h"

namespace skiff::cpu {
namespace {

inline F load_n(const float* p, int64_t n) {
  if (n >= kW) return load(p);
  float t[kW] = {};
  for (int64_t i = 0; i < n; ++i) t[i] = p[i];
  return load(t);
}
inline void store_n(float* p, F v, int64_t n) {
  if (n >= kW) return store(p, v);
  float t[kW];
  store(t, v);
  for (int64_t i = 0; i < n; ++i) p[i] = t[i];
}
inline float sum_lanes(F v) {
  float t[kW];
  store(t, v);
  for (int half = kW / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) t[i] += t[i + half];
  return t[0];
}
inline float max_lanes(F v) {
  float t[kW];
  store(t, v);
  float m = t[0];
  for (int i = 1; i < kW; ++i) m = t[i] > m ? t[i] : m;
  return m;
}

// e^x = 2^n * e^r with n = round(x / ln 2), |r| <= ln 2 / 2. ln 2 is split in two so that n times
// the first part is exact. The series is cut after r^7 / 7!: what is left out is below
// 0.347^8 / 8! = 6e-9, a tenth of an ulp; rounding in the last steps makes it 2 ulp.
inline F exp_of(F x) {
  x = min(set1(88.8f), max(set1(-88.0f), x));  // operands in this order let NaN through
  const F n = round(x * set1(1.44269504f));
  const F r = fma(n, set1(2.12194440e-4f), fma(n, set1(-0.693359375f), x));
  F p = fma(set1(1.0f / 5040), r, set1(1.0f / 720));
  p = fma(p, r, set1(1.0f / 120));
  p = fma(p, r, set1(1.0f / 24));
  p = fma(p, r, set1(1.0f / 6));
  p = fma(p, r, set1(0.5f));
  p = fma(p, r * r, r) + set1(1.0f);
  return p * pow2(n);
}

template <F (*Load)(const uint16_t*)>
void widen(float* out, const uint16_t* x, int64_t n) {
  int64_t i = 0;
  for (; i + kW <= n; i += kW) store(out + i, Load(x + i));
  if (i == n) return;
  uint16_t t[kW] = {};
  for (int64_t j = i; j < n; ++j) t[j - i] = x[j];
  store_n(out + i, Load(t), n - i);
}
void bf16_to_f32(float* out, const uint16_t* x, int64_t n) { widen<load_bf16>(out, x, n); }
void f16_to_f32(float* out, const uint16_t* x, int64_t n) { widen<load_f16>(out, x, n); }

void f32_to_bf16(uint16_t* out, const float* x, int64_t n) {
  int64_t i = 0;
  for (; i + kW <= n; i += kW) store_bf16(out + i, load(x + i));
  if (i == n) return;
  uint16_t t[kW];
  store_bf16(t, load_n(x + i, n - i));
  for (int64_t j = i; j < n; ++j) out[j] = t[j - i];
}

void add(float* x, const float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += kW)
    store_n(x + i, load_n(x + i, n - i) + load_n(y + i, n - i), n - i);
}

void add_scaled(float* x, float s, const float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += kW)
    store_n(x + i, fma(set1(s), load_n(y + i, n - i), load_n(x + i, n - i)), n - i);
}

float sum_squares(const float* x, int64_t n) {
  constexpr int64_t kSums = 4;
  F sum[kSums] = {set1(0), set1(0), set1(0), set1(0)};
  for (int64_t i = 0; i < n; i += kSums * kW)
    for (int64_t s = 0; s < kSums && i + s * kW < n; ++s) {
      const F v = load_n(x + i + s * kW, n - i - s * kW);
      sum[s] = fma(v, v, sum[s]);
    }
  return sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

void scale(float* out, const float* x, float s, const float* w, int64_t n) {
  for (int64_t i = 0; i < n; i += kW)
    store_n(out + i, load_n(x + i, n - i) * set1(s) * load_n(w + i, n - i), n - i);
}

void silu_mul(float* out, const float* gate, const float* up, int64_t n) {
  for (int64_t i = 0; i < n; i += kW) {
    const F g = load_n(gate + i, n - i);
    const F silu = g / (set1(1.0f) + exp_of(set1(0.0f) - g));
    store_n(out + i, silu * load_n(up + i, n - i), n - i);
  }
}

void exp(float* out, const float* x, float shift, float s, int64_t n) {
  for (int64_t i = 0; i < n; i += kW)
    store_n(out + i, exp_of((load_n(x + i, n - i) - set1(shift)) * set1(s)), n - i);
}

float max(const float* x, int64_t n) {
  F v = set1(-__builtin_inff());
  int64_t i = 0;
  for (; i + kW <= n; i += kW) v = max(load(x + i), v);
  float m = max_lanes(v);
  for (; i < n; ++i) m = x[i] > m ? x[i] : m;
  return m;
}

// emit(c, v): v holds unit c of each of kW rows.
template <class Emit>
void transpose_rows(const uint32_t* const* src, int64_t count, Emit emit) {
  int64_t c = 0;
  for (; c + kW <= count; c += kW) {
    F r[kW];
    for (int i = 0; i < kW; ++i) memcpy(&r[i], src[i] + c, sizeof(F));
    transpose(r);
    for (int i = 0; i < kW; ++i) emit(c + i, r[i]);
  }
  for (; c < count; ++c) {
    uint32_t column[kW];
    for (int i = 0; i < kW; ++i) memcpy(&column[i], src[i] + c, sizeof column[i]);
    F v;
    memcpy(&v, column, sizeof v);
    emit(c, v);
  }
}

void pack_panel(uint32_t* dst, const uint32_t* const* src, int64_t count) {
  for (int j = 0; j < kPanel; j += kW)
    transpose_rows(src + j, count,
                   [&](int64_t c, F v) { memcpy(dst + c * kPanel + j, &v, sizeof v); });
}

}  // namespace
}  // namespace skiff::cpu

// ops/cpu/isa/codes_body.h -- quantized weights and activations, for any vector type. Include after
// one vec_<isa>.h.
#pragma once
#include "ops/cpu/isa/bands.h"

namespace skiff::cpu {
namespace {

// Calls field(source, left) for each input of a line; `left` shifts the input's bits to the top of
// each output's word.
template <int kBits, class Field>
void expand_fields(float* to, const CodeLines& from, Field field) {
  constexpr int kInputs = 32 / kBits;
  const uint32_t* words = from.first;
  for (int64_t line = 0; line < from.count; ++line, words += from.step)
    for (int i = 0; i < kInputs; ++i, to += kPanel) {
      const int place = kBits == 4 ? i / 2 + i % 2 * 4 : i;  // code_panels.h
      for (int j = 0; j < kPanel; j += kW)
        store(to + j, field(words + j, 32 - kBits * (place + 1)));
    }
}

// Calls f.operator()<bits>(field) with the way to read one input of a word.
template <class Do>
void with_field(Codes codes, Do f) {
  switch (codes) {
    case Codes::kI8:
      return f.template operator()<8>([](auto* p, int left) { return signed_field(p, left, 24); });
    case Codes::kU8:
      return f.template operator()<8>(
          [](auto* p, int left) { return unsigned_field(p, left, 24); });
    case Codes::kF8E4M3:
      return f.template operator()<8>([](auto* p, int left) { return e4m3_field(p, left); });
    case Codes::kI4:
      return f.template operator()<4>([](auto* p, int left) { return signed_field(p, left, 28); });
    case Codes::kU4:
      return f.template operator()<4>(
          [](auto* p, int left) { return unsigned_field(p, left, 28); });
    case Codes::kF4E2M1:
      return f.template operator()<4>([](auto* p, int left) { return e2m1_field(p, left); });
  }
}

void expand(void* out, const CodeLines& from, Codes codes) {
  with_field(codes, [&]<int kBits>(auto field) {
    expand_fields<kBits>(static_cast<float*>(out), from, field);
  });
}

// Writes [rows][2 * kPanel] sums of R rows and one pair of panels.
template <int kBits, int R, class Field>
void few_rows_sum(const CodeRows& g, const CodeSum& s, int pair, float* part, Field field) {
  constexpr int kInputs = 32 / kBits, kVecs = 2 * kPanel / kW;
  const LinePlace place = place_of(pair, g.panels, g.panel_words);
  const uint32_t* b = g.b + place.first + s.line * place.step;
  const auto* a = static_cast<const float*>(g.a) + s.begin;
  // Vectors of columns are taken in turn, as many as registers hold sums of.
  constexpr int kTurn = kVecs < 4 ? kVecs : 4;
  for (int64_t v0 = 0; v0 < kVecs; v0 += kTurn) {
    F sum[R][kTurn];
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < kTurn; ++v) sum[r][v] = set1(0);
    for (int64_t line = 0; line < s.lines; ++line)
      for (int i = 0; i < kInputs; ++i) {
        const int left = 32 - kBits * ((kBits == 4 ? i / 2 + i % 2 * 4 : i) + 1);
        F w[kTurn];
        // The lines of a pair of panels lie side by side.
        for (int v = 0; v < kTurn; ++v) w[v] = field(b + line * place.step + (v0 + v) * kW, left);
        for (int r = 0; r < R; ++r) {
          const F x = set1(a[r * g.lda + line * kInputs + i]);
          for (int v = 0; v < kTurn; ++v) sum[r][v] = fma(x, w[v], sum[r][v]);
        }
      }
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < kTurn; ++v)
        store(part + int64_t{r} * 2 * kPanel + (v0 + v) * kW, sum[r][v]);
  }
}

template <bool kFirst, bool kMinimum>
void scaled_rows(const ScaledSum& s) {
  for (int64_t r = 0; r < s.rows; ++r) {
    const F row = set1(s.row_scale ? s.row_scale[r * s.row_stride] : 1);
    const F sum = set1(kMinimum ? -s.row_sum[r * s.row_stride] : 0);
    float* c = s.c + r * s.ldc;
    for (int64_t j = 0; j < s.cols; j += kW) {
      F v = load(s.part + r * s.cols + j) * load(s.scale + j);
      v = v * row;
      if constexpr (kMinimum) v = fma(sum, load(s.minimum + j), v);
      store(c + j, kFirst ? v : load(c + j) + v);
    }
  }
}

void scaled_sum(const ScaledSum& s) {
  if (s.minimum) return s.first ? scaled_rows<true, true>(s) : scaled_rows<false, true>(s);
  return s.first ? scaled_rows<true, false>(s) : scaled_rows<false, false>(s);
}

// Multiplies the sums of a pair of panels by their scales and adds them to the result.
inline void close_pair(const CodeRows& g, const CodeSum& s, int pair, const float* part,
                       bool first) {
  const int64_t group = s.group - g.sums->group;
  for (int p = pair; p < pair + 2; ++p) {
    const int64_t scales = (p * g.groups + group) * kPanel;
    float columns[kFewRows * kPanel];
    for (int64_t r = 0; r < g.rows; ++r)
      memcpy(columns + r * kPanel, part + (2 * r + p - pair) * kPanel, kPanel * sizeof(float));
    const float* row = g.values ? g.values + s.value : nullptr;
    scaled_sum({.part = columns,
                .rows = g.rows,
                .cols = kPanel,
                .scale = g.scale + scales,
                .minimum = g.minimum ? g.minimum + scales : nullptr,
                .row_scale = g.minimum ? nullptr : row,
                .row_sum = g.minimum ? row : nullptr,
                .row_stride = g.value_stride,
                .c = g.c + int64_t{p} * kPanel,
                .ldc = g.ldc,
                .first = first});
  }
}

template <int kBits, int R, class Field>
void few_rows_of(const CodeRows& g, Field field) {
  if (g.rows < R) {
    if constexpr (R > 1) few_rows_of<kBits, R - 1>(g, field);
    return;
  }
  float part[kFewRows * 2 * kPanel];
  for (int pair = 0; pair < g.panels; pair += 2)
    for (int64_t i = 0; i < g.count; ++i) {
      few_rows_sum<kBits, R>(g, g.sums[i], pair, part, field);
      close_pair(g, g.sums[i], pair, part, g.first && i == 0);
    }
}

void few_rows(const CodeRows& g) {
  with_field(g.codes, [&]<int kBits>(auto field) { few_rows_of<kBits, kFewRows>(g, field); });
}

// The bits of sizes are in the order of the sizes, infinities and what is no number above them.
float max_abs(const float* x, int64_t n) {
  int32_t most = 0;
  for (int64_t i = 0; i < n; ++i) {
    int32_t size;
    memcpy(&size, x + i, sizeof size);
    size &= 0x7fffffff;
    most = size > most ? size : most;
  }
  float out;
  memcpy(&out, &most, sizeof out);
  return out;
}

// Adding and subtracting 1.5 * 2^23 rounds what lies within 2^22 to integers, ties to even.
inline float nearest(float x) { return (x + 12582912.0f) - 12582912.0f; }

void round_integers(float* x, float scale, float low, float high, Ties ties, int64_t n) {
  const bool away = ties == Ties::kAway;
  for (int64_t i = 0; i < n; ++i) {
    float q = x[i] / scale;
    q = q < low ? low : q;
    q = q > high ? high : q;
    const float even = nearest(q), rest = q - even;  // exact
    const bool tie = away && (rest == 0.5f || rest == -0.5f);
    x[i] = tie ? q + (q < 0 ? -0.5f : 0.5f) : even;
  }
}

// Values of at least 2^-6 keep four bits of mantissa; smaller ones are multiples of 2^-9.
void round_e4m3(float* x, float scale, int64_t n) {
  constexpr float kMost = 448, kSmall = 0x1p-6f, kMagic = 0x1.8p14f;  // 1.5 * 2^23 * 2^-9
  for (int64_t i = 0; i < n; ++i) {
    float q = x[i] / scale;
    q = q < -kMost ? -kMost : q;
    q = q > kMost ? kMost : q;
    uint32_t u;
    memcpy(&u, &q, sizeof u);
    u = (u + 0x7ffff + (u >> 20 & 1)) & 0xfff00000u;
    float large;
    memcpy(&large, &u, sizeof large);
    const float small = (q + kMagic) - kMagic;
    x[i] = q < kSmall && q > -kSmall ? small : large;
  }
}

}  // namespace
}  // namespace skiff::cpu

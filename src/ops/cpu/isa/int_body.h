// ops/cpu/isa/int_body.h -- codes times activations that are integers too, for any vector type.
// Include after one vec_<isa>.h.
//
// Elements of the operand have 16 bits, and so have codes once they are spread to the halves of
// words: 8-bit products (VPMADDUBSW) would saturate where two of them make one sum.
#pragma once
#include "ops/cpu/isa/bands.h"

namespace skiff::cpu {
namespace {

// Two inputs of each output are read out of a line at a time, the first ones as those whose codes
// are lowest in both halves of a word (code_panels.h).
template <bool kNibbles>
struct IntLine {
  static constexpr int kPairs = kNibbles ? 4 : 2, kInputs = 2 * kPairs;
  static constexpr int kMask = kNibbles ? 0x000f000f : 0x00ff00ff;
  static constexpr int kRight[4] = {0, 8, 4, 12};
  static constexpr int kOrder[8] = {
      0, kNibbles ? 1 : 2, kNibbles ? 4 : 1, kNibbles ? 5 : 3, 2, 3, 6, 7};
};

template <bool kNibbles>
int32_t write_int_lines(int16_t* to, const float* x, int64_t n) {
  using Line = IntLine<kNibbles>;
  int32_t sum = 0;
  for (int64_t i = 0; i < n; i += Line::kInputs)
    for (int j = 0; j < Line::kInputs; ++j) {
      const int64_t from = i + Line::kOrder[j];
      // What is no number becomes zero.
      const float value = from < n && x[from] == x[from] ? x[from] : 0;
      to[i + j] = static_cast<int16_t>(value);
      sum += to[i + j];
    }
  return sum;
}

int32_t write_integers(void* to, const float* x, int64_t n, bool nibbles) {
  auto* out = static_cast<int16_t*>(to);
  return nibbles ? write_int_lines<true>(out, x, n) : write_int_lines<false>(out, x, n);
}

constexpr int kIntRows = 4, kIntVecs = 2;

// Adds the sum `s` of R rows and kIntVecs vectors of columns, the first of a pair of panels at
// `col`, to the result.
template <bool kNibbles, int R>
void int_sum(const CodeRows& g, const CodeSum& s, int row, int pair, int col, bool opens) {
  using Line = IntLine<kNibbles>;
  const LinePlace place = place_of(pair, g.panels, g.panel_words);
  const uint32_t* b = g.b + place.first + s.line * place.step + col;
  const auto* a = static_cast<const int16_t*>(g.a) + row * g.lda + s.begin;
  const float* values = g.values + row * g.value_stride;
  I sum[R][kIntVecs];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kIntVecs; ++v)
      sum[r][v] = set1_int(-g.offset * static_cast<int32_t>(values[r * g.value_stride + s.inputs]));
  for (int64_t i = 0; i < s.lines; ++i, b += place.step, a += Line::kInputs) {
    I u[kIntVecs];
    for (int64_t v = 0; v < kIntVecs; ++v) u[v] = load_words(b + v * kW);
    for (int64_t f = 0; f < Line::kPairs; ++f) {
      I w[kIntVecs];
      for (int v = 0; v < kIntVecs; ++v) w[v] = halves_of(u[v], Line::kRight[f], Line::kMask);
      for (int r = 0; r < R; ++r) {
        const I x = set1_word(a + r * g.lda + 2 * f);
        for (int v = 0; v < kIntVecs; ++v) sum[r][v] = add_products(sum[r][v], w[v], x);
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kIntVecs; ++v) {
      const int64_t panel = pair + (col + v * kW) / kPanel, j = (col + v * kW) % kPanel;
      const int64_t at = (panel * g.groups + s.group - g.sums->group) * kPanel + j;
      const F scaled = to_floats(sum[r][v]) * load(g.scale + at);
      const F value = scaled * set1(values[r * g.value_stride + s.value]);
      float* c = g.c + (row + r) * g.ldc + panel * kPanel + j;
      store(c, opens ? value : load(c) + value);
    }
}

template <bool kNibbles, int R = kIntRows>
void int_tile(const CodeRows& g, int row, int pair) {
  if (g.rows - row < R) {
    if constexpr (R > 1) int_tile<kNibbles, R - 1>(g, row, pair);
    return;
  }
  for (int col = 0; col < 2 * kPanel; col += kIntVecs * kW)
    for (int64_t i = 0; i < g.count; ++i)
      int_sum<kNibbles, R>(g, g.sums[i], row, pair, col, g.first && i == 0);
}

void int_rows(const CodeRows& g) {
  const auto tile = is_nibble(g.codes) ? &int_tile<true> : &int_tile<false>;
  for (int pair = 0; pair < g.panels; pair += 2)
    for (int row = 0; row < g.rows; row += kIntRows) tile(g, row, pair);
}

}  // namespace
}  // namespace skiff::cpu

// GCC 12 takes the deliberately undefined sources of its own intrinsics for mistakes.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#include <string.h>

#include "ops/cpu/isa/bands.h"

namespace skiff::cpu {
namespace {

// VPDPBUSD adds four products of an unsigned and a signed byte to each sum. A line of bytes is what
// it reads; one of nibbles is two such lines, of the low ones and of the high ones.
template <bool kNibbles>
struct IntLine {
  static constexpr int kWords = kNibbles ? 2 : 1;
  static constexpr int kAhead = kNibbles ? 2048 : 512;  // bytes that a single tile asks for ahead

  static void read(__m512i (&to)[kWords], __m512i u) {
    if constexpr (kNibbles) {
      const __m512i low = _mm512_set1_epi8(15);
      to[0] = _mm512_and_si512(u, low);
      to[1] = _mm512_and_si512(_mm512_srli_epi32(u, 4), low);
    } else {
      to[0] = u;
    }
  }
};

inline __m512i word_of(const int8_t* p) {
  int word;
  memcpy(&word, p, sizeof word);
  return _mm512_set1_epi32(word);
}

// GCC 12 keeps sums of this type in registers, but copies those of __m512i from one to another.
using Words = int32_t __attribute__((vector_size(64)));

// R rows times P panels of a band.
struct Tile {
  const CodeRows& g;
  int row, panel;
};

template <bool kNibbles, bool kStream, int R, int P>
void multiply(const Tile& t, const CodeSum& s, bool opens) {
  using Line = IntLine<kNibbles>;
  const CodeRows& g = t.g;
  Words sum[R][P];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const float inputs = g.values[(t.row + r) * g.value_stride + s.inputs];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p)
      sum[r][p] = (Words)_mm512_set1_epi32(-g.offset * static_cast<int32_t>(inputs));
  }
  const LinePlace place = place_of(t.panel, g.panels, g.panel_words);
  const uint32_t* b = g.b + place.first + s.line * place.step;
  const int8_t* a = static_cast<const int8_t*>(g.a) + t.row * g.lda + s.begin;
  const int64_t lda = g.lda;
  for (int64_t i = 0; i < s.lines; ++i, a += int64_t{4} * Line::kWords, b += place.step) {
    __m512i w[P][Line::kWords];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const uint32_t* line = b + int64_t{p} * kPanel;
      if constexpr (kStream)
        _mm_prefetch(reinterpret_cast<const char*>(line) + Line::kAhead, _MM_HINT_T0);
      Line::read(w[p], _mm512_loadu_si512(line));
    }
#pragma GCC unroll 2
    for (int n = 0; n < Line::kWords; ++n) {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const __m512i x = word_of(a + r * lda + int64_t{4} * n);
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p)
          sum[r][p] = (Words)_mm512_dpbusd_epi32((__m512i)sum[r][p], w[p][n], x);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const __m512 scale = _mm512_set1_ps(g.values[(t.row + r) * g.value_stride + s.value]);
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const int64_t at = ((t.panel + p) * g.groups + s.group - g.sums->group) * kPanel;
      __m512 v =
          _mm512_mul_ps(_mm512_cvtepi32_ps((__m512i)sum[r][p]), _mm512_loadu_ps(g.scale + at));
      v = _mm512_mul_ps(v, scale);
      float* c = g.c + ((t.row + r) * int64_t{g.panels} + t.panel + p) * kPanel;
      _mm512_storeu_ps(c, opens ? v : _mm512_add_ps(_mm512_loadu_ps(c), v));
    }
  }
}

template <bool kNibbles, bool kStream, int P, int R>
void tile(const Tile& t, int rows) {
  const CodeRows& g = t.g;
  if (rows >= R) {
    for (int64_t i = 0; i < g.count; ++i)
      multiply<kNibbles, kStream, R, P>(t, g.sums[i], g.first && i == 0);
    return;
  }
  if constexpr (R > 1) tile<kNibbles, kStream, P, R - 1>(t, rows);
}

// As many rows of a whole band, or a pair of panels, as registers hold sums of. A pair needs fewer
// loads, a band reads memory from front to back: two tiles of rows cost few rows less than two
// pairs.
constexpr int kBandRows = 6, kPairRows = 12;

template <bool kNibbles, int P>
void few_rows(const CodeRows& g, int panel) {
  const int rows = g.rows <= kBandRows ? g.rows : (g.rows + 1) / 2;
  tile<kNibbles, true, P, kBandRows>({g, 0, panel}, rows);
  if (rows < g.rows) tile<kNibbles, false, P, kBandRows>({g, rows, panel}, g.rows - rows);
}

template <bool kNibbles>
void int_rows(const CodeRows& g) {
  if (g.rows > 2 * kBandRows) {
    for (int panel = 0; panel < g.panels; panel += 2)
      for (int row = 0; row < g.rows; row += kPairRows)
        tile<kNibbles, false, 2, kPairRows>({g, row, panel}, g.rows - row);
    return;
  }
  int panel = 0;
  for (; panel + kBand <= g.panels; panel += kBand) few_rows<kNibbles, kBand>(g, panel);
  if (panel < g.panels) few_rows<kNibbles, 2>(g, panel);
}

}  // namespace

void int_rows_avx512vnni(const CodeRows& g) {
  is_nibble(g.codes) ? int_rows<true>(g) : int_rows<false>(g);
}

int32_t write_integers_avx512vnni(void* to, const float* x, int64_t n, bool nibbles) {
  // The bytes of the low nibbles of a word, then those of the high ones.
  const __m128i order = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
  auto* out = static_cast<int8_t*>(to);
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < n; i += 16) {
    const int64_t left = n - i;
    const auto mask = static_cast<__mmask16>(left < 16 ? (1 << left) - 1 : 0xffff);
    const __m512 value = _mm512_maskz_loadu_ps(mask, x + i);
    // What is no number becomes zero.
    const __mmask16 number = _mm512_cmp_ps_mask(value, value, _CMP_ORD_Q);
    const __m512i integer = _mm512_maskz_cvtps_epi32(number, value);
    sum = _mm512_add_epi32(sum, integer);
    const __m128i bytes = _mm512_cvtepi32_epi8(integer);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     nibbles ? _mm_shuffle_epi8(bytes, order) : bytes);
  }
  return _mm512_reduce_add_epi32(sum);
}

}  // namespace skiff::cpu

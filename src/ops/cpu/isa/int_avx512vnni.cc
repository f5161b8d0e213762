#include <string.h>

#include "ops/cpu/isa/bands.h"
#include "ops/cpu/isa/intrinsics.h"
#include "ops/cpu/isa/scaled_sums.h"

namespace skiff::cpu {
namespace {

// VPDPBUSD adds four products of an unsigned and a signed byte to each sum. A line of bytes is what
// it reads; one of nibbles is two such lines, of the low ones and of the high ones.
template <bool kNibbles>
struct IntLine {
  static constexpr int kWords = kNibbles ? 2 : 1;
  static constexpr int kAhead = kNibbles ? 2048 : 512;  // bytes, of Fetch::kStream

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

// What a tile asks the cache for: kStream, lines that it will soon read itself; kBehind, for a pair
// of panels whose rows are many, the same lines of the band behind, so that memory does not rest
// while this band is multiplied out of the cache.
enum class Fetch { kStream, kBehind };

// Two bands that lie in the cache of a core, or else a few lines ahead, in bytes.
constexpr int64_t kWidestAhead = 384 << 10;

template <class Line>
int64_t ahead_of(Fetch fetch, int64_t band) {
  return fetch == Fetch::kBehind && band <= kWidestAhead ? band : Line::kAhead;
}

template <bool kNibbles, Fetch kFetch, int R, int P>
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
  const int64_t ahead = ahead_of<Line>(kFetch, g.panel_words * (place.step / kPanel) * 4);
  for (int64_t i = 0; i < s.lines; ++i, a += int64_t{4} * Line::kWords, b += place.step) {
    __m512i w[P][Line::kWords];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const uint32_t* line = b + int64_t{p} * kPanel;
      constexpr auto kLevel = kFetch == Fetch::kStream ? _MM_HINT_T0 : _MM_HINT_T1;
      _mm_prefetch(reinterpret_cast<const char*>(line) + ahead, kLevel);
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
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p)
      add_scaled(g, s, t.row + r, t.panel + p, _mm512_cvtepi32_ps((__m512i)sum[r][p]), opens);
  }
}

template <bool kNibbles, Fetch kFetch, int P, int R>
void tile(const Tile& t, int rows) {
  const CodeRows& g = t.g;
  if (rows >= R) {
    for (int64_t i = 0; i < g.count; ++i)
      multiply<kNibbles, kFetch, R, P>(t, g.sums[i], g.first && i == 0);
    return;
  }
  if constexpr (R > 1) tile<kNibbles, kFetch, P, R - 1>(t, rows);
}

// A few rows read a band from front to back at the speed of memory. More rows take its pairs of
// panels in turn, which needs fewer loads for each product: as many rows as registers hold sums of.
constexpr int kPairRows = 12;

template <bool kNibbles>
void int_rows(const CodeRows& g) {
  constexpr int kBandRows = kNibbles ? 4 : 2;
  if (g.rows > kBandRows) {
    for (int panel = 0; panel < g.panels; panel += 2)
      for (int row = 0; row < g.rows; row += kPairRows)
        tile<kNibbles, Fetch::kBehind, 2, kPairRows>({g, row, panel}, g.rows - row);
    return;
  }
  int panel = 0;
  for (; panel + kBand <= g.panels; panel += kBand)
    tile<kNibbles, Fetch::kStream, kBand, kBandRows>({g, 0, panel}, g.rows);
  if (panel < g.panels) tile<kNibbles, Fetch::kStream, 2, kBandRows>({g, 0, panel}, g.rows);
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

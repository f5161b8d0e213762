#include <string.h>

#include "ops/cpu/isa/bands.h"
#include "ops/cpu/isa/code_readers.h"
#include "ops/cpu/isa/flush_subnormals.h"
#include "ops/cpu/isa/intrinsics.h"
#include "ops/cpu/isa/scaled_sums.h"

namespace skiff::cpu {
namespace {

// TDPBF16PS takes two sums of the 32 inputs of a tile's row, one of the even inputs and one of the
// odd ones, by fused multiply-adds in the order of the inputs, and adds both to the accumulator;
// subnormals are zero before and after each step (Intel SDM vol. 2, TDPBF16PS). The same steps in
// vectors give the same bits. A few rows are multiplied that way, because vectors read plain
// weights and expand codes in registers, at the speed of memory.

// The two bf16 elements of each word.
inline __m512 even_of(__m512i words) { return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)); }
inline __m512 odd_of(__m512i words) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  return _mm512_castsi512_ps(_mm512_and_si512(words, upper));
}

// Readers give the values of a line, 2 * kPairs inputs of each output, as floats: even(line, i) and
// odd(line, i) are the inputs 2i and 2i + 1.
struct PlainPairs {
  static constexpr int kPairs = 1;
  using Line = __m512i;
  static Line read(__m512i u) { return u; }
  static __m512 even(Line u, int /*i*/) { return even_of(u); }
  static __m512 odd(Line u, int /*i*/) { return odd_of(u); }
};

template <bool kSigned>
struct BytePairs {
  static constexpr int kPairs = 2;
  using Line = __m512i;
  ComputedBytes<kSigned> bytes;
  Line read(__m512i u) const { return bytes.without_sign(u); }
  __m512 even(Line u, int i) const { return bytes.value(u, 2 * i); }
  __m512 odd(Line u, int i) const { return bytes.value(u, 2 * i + 1); }
};

struct E4m3Pairs {
  static constexpr int kPairs = 2;
  struct Line {
    __m512i words[kPairs];
  };
  UnpackedE4m3 bytes;
  Line read(__m512i u) const {
    Line line;
    bytes.read(line.words, u);
    return line;
  }
  static __m512 even(const Line& u, int i) { return even_of(u.words[i]); }
  static __m512 odd(const Line& u, int i) { return odd_of(u.words[i]); }
};

struct NibblePairs {
  static constexpr int kPairs = 4;
  using Line = __m512i;
  __m512 values;
  explicit NibblePairs(const Table& table)
      : values(even_of(_mm512_cvtepu16_epi32(
            _mm256_load_si256(reinterpret_cast<const __m256i*>(table.value))))) {}
  static Line read(__m512i u) { return u; }
  __m512 even(Line u, int i) const {
    return _mm512_permutexvar_ps(_mm512_srli_epi32(u, static_cast<unsigned>(4 * i)), values);
  }
  __m512 odd(Line u, int i) const {
    return _mm512_permutexvar_ps(_mm512_srli_epi32(u, static_cast<unsigned>(16 + 4 * i)), values);
  }
};

template <class Do>
void with_pairs(Codes codes, Do f) {
  switch (codes) {
    case Codes::kI8:
      return f(BytePairs<true>{});
    case Codes::kU8:
      return f(BytePairs<false>{});
    case Codes::kF8E4M3:
      return f(E4m3Pairs{});
    case Codes::kI4:
      return f(NibblePairs(kSignedNibbles));
    case Codes::kU4:
      return f(NibblePairs(kUnsignedNibbles));
    case Codes::kF4E2M1:
      return f(NibblePairs(kE2m1));
  }
}

inline __m512i word_of(const uint16_t* p) {
  int word;
  memcpy(&word, p, sizeof word);
  return _mm512_set1_epi32(word);
}

// Lines of some panels, and the rows that they meet.
struct Factors {
  const uint32_t* lines;
  int64_t step, panel;  // words from one line to the next, and from one panel to the next
  int64_t count;        // lines of a panel
  const uint16_t* rows;
  int64_t lda;
};

constexpr int64_t kAhead = 4096;  // bytes of a panel that are asked for ahead of their use

// Adds the products of R rows and P panels to `sums`. A function of its own, so that no arithmetic
// leaves the time in which subnormals are flushed.
template <int R, int P, class Pairs>
[[gnu::noinline]] void multiply(const Factors& f, const Pairs& given, __m512 (&sums)[R][P]) {
  constexpr int64_t kStep = kKStep / (2 * Pairs::kPairs);  // lines whose sums a tile adds at once
  const Pairs pairs = given;
  const uint16_t* a = f.rows;
  const uint32_t* b = f.lines;
  for (int64_t line = 0; line < f.count; line += kStep) {
    const int64_t lines = f.count - line < kStep ? f.count - line : kStep;
    __m512 evens[R][P], odds[R][P];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) evens[r][p] = odds[r][p] = _mm512_setzero_ps();
    }
    for (int64_t i = 0; i < lines; ++i, b += f.step, a += int64_t{2} * Pairs::kPairs) {
      typename Pairs::Line values[P];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        const uint32_t* at = b + p * f.panel;
        _mm_prefetch(reinterpret_cast<const char*>(at) + kAhead, _MM_HINT_T0);
        values[p] = pairs.read(_mm512_loadu_si512(at));
      }
#pragma GCC unroll 4
      for (int n = 0; n < Pairs::kPairs; ++n) {
        __m512 x[R][2];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const __m512i word = word_of(a + r * f.lda + int64_t{2} * n);
          x[r][0] = even_of(word);
          x[r][1] = odd_of(word);
        }
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
          const __m512 even = pairs.even(values[p], n), odd = pairs.odd(values[p], n);
#pragma GCC unroll 4
          for (int r = 0; r < R; ++r) {
            evens[r][p] = _mm512_fmadd_ps(x[r][0], even, evens[r][p]);
            odds[r][p] = _mm512_fmadd_ps(x[r][1], odd, odds[r][p]);
          }
        }
      }
    }
    // Inputs that a tile has beyond the last line are zero. Adding them has one effect: the sign of
    // a zero.
    const __m512 beyond = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        if (lines < kStep) {
          evens[r][p] = _mm512_add_ps(evens[r][p], beyond);
          odds[r][p] = _mm512_add_ps(odds[r][p], beyond);
        }
        sums[r][p] = _mm512_add_ps(sums[r][p], _mm512_add_ps(evens[r][p], odds[r][p]));
      }
    }
  }
}

template <int R, int P, class Pairs>
void multiply_flushing(const Factors& f, const Pairs& pairs, __m512 (&sums)[R][P]) {
  const FlushSubnormals flush;
  multiply<R, P>(f, pairs, sums);
}

// How many panels R rows take at a time, as many as registers hold sums of.
constexpr int panels_of(int rows) { return rows <= 2 ? kBand : 2; }

template <int R, int P>
void plain_panels(const GemmBlock& g, int panel) {
  float* c = g.c + int64_t{panel} * kPanel;
  __m512 sums[R][P];
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p)
      sums[r][p] =
          g.add ? _mm512_loadu_ps(c + r * g.ldc + int64_t{p} * kPanel) : _mm512_setzero_ps();
  const auto* first = static_cast<const uint16_t*>(g.b) + panel * g.panel_stride;
  multiply_flushing<R, P>({reinterpret_cast<const uint32_t*>(first), kPanel, g.panel_stride / 2,
                           g.k / 2, static_cast<const uint16_t*>(g.a), g.lda},
                          PlainPairs{}, sums);
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) _mm512_storeu_ps(c + r * g.ldc + int64_t{p} * kPanel, sums[r][p]);
}

template <int R>
void plain_rows(const GemmBlock& g) {
  if (g.rows < R) {
    if constexpr (R > 1) plain_rows<R - 1>(g);
    return;
  }
  constexpr int kPanels = panels_of(R);
  int p = 0;
  for (; p + kPanels <= g.panels; p += kPanels) plain_panels<R, kPanels>(g, p);
  for (; p < g.panels; p += 2) plain_panels<R, 2>(g, p);
}

template <int R, int P, class Pairs>
void code_panels(const CodeRows& g, int first, const CodeSum& s, bool opens, const Pairs& pairs) {
  const LinePlace place = place_of(first, g.panels, g.panel_words);
  __m512 sums[R][P];
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) sums[r][p] = _mm512_setzero_ps();
  multiply_flushing<R, P>({g.b + place.first + s.line * place.step, place.step, kPanel, s.lines,
                           static_cast<const uint16_t*>(g.a) + s.begin, g.lda},
                          pairs, sums);
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) add_scaled(g, s, r, first + p, sums[r][p], opens);
}

template <int R, class Pairs>
void code_rows(const CodeRows& g, const Pairs& pairs) {
  if (g.rows < R) {
    if constexpr (R > 1) code_rows<R - 1>(g, pairs);
    return;
  }
  constexpr int kPanels = panels_of(R);
  int p = 0;
  for (; p + kPanels <= g.panels; p += kPanels)
    for (int64_t i = 0; i < g.count; ++i)
      code_panels<R, kPanels>(g, p, g.sums[i], g.first && i == 0, pairs);
  for (; p < g.panels; p += 2)
    for (int64_t i = 0; i < g.count; ++i)
      code_panels<R, 2>(g, p, g.sums[i], g.first && i == 0, pairs);
}

}  // namespace

void plain_rows_amx(const GemmBlock& g) { plain_rows<kFewRowsAmx>(g); }

void few_rows_amx(const CodeRows& g) {
  with_pairs(g.codes, [&](const auto& pairs) { code_rows<kFewRowsAmx>(g, pairs); });
}

}  // namespace skiff::cpu

#include <string.h>

#include "ops/cpu/isa/flush_subnormals.h"
#include "ops/cpu/isa/intrinsics.h"
#include "ops/cpu/isa/kernels.h"

namespace skiff::cpu {
namespace {

// TDPBF16PS takes two sums of the 32 inputs of a tile's row, one of the even inputs and one of the
// odd ones, by fused multiply-adds in the order of the inputs, and adds both to the accumulator;
// subnormals are zero before and after each step (Intel SDM vol. 2, TDPBF16PS). The same steps in
// vectors give the same bits. A few rows meet plain weights that way, because vectors read them at
// the speed of memory.

// The two bf16 elements of each word.
inline __m512 even_of(__m512i words) { return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)); }
inline __m512 odd_of(__m512i words) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  return _mm512_castsi512_ps(_mm512_and_si512(words, upper));
}

inline __m512i word_of(const uint16_t* p) {
  int word;
  memcpy(&word, p, sizeof word);
  return _mm512_set1_epi32(word);
}

// Lines of some panels, and the rows that they meet.
struct Factors {
  const uint32_t* lines;
  int64_t panel;  // words from one panel to the next
  int64_t count;  // lines of a panel, each two inputs of an output
  const uint16_t* rows;
  int64_t lda;
};

constexpr int64_t kAhead = 4096;  // bytes of a panel that are asked for ahead of their use

// Adds the products of R rows and P panels to `sums`. A function of its own, so that no arithmetic
// leaves the time in which subnormals are flushed.
template <int R, int P>
[[gnu::noinline]] void multiply(const Factors& f, __m512 (&sums)[R][P]) {
  constexpr int64_t kStep = kKStep / 2;  // lines whose sums a tile adds at once
  const uint16_t* a = f.rows;
  const uint32_t* b = f.lines;
  for (int64_t line = 0; line < f.count; line += kStep) {
    __m512 evens[R][P], odds[R][P];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) evens[r][p] = odds[r][p] = _mm512_setzero_ps();
    }
    for (int64_t i = 0; i < kStep; ++i, b += kPanel, a += 2) {
      __m512 even[R], odd[R];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m512i word = word_of(a + r * f.lda);
        even[r] = even_of(word);
        odd[r] = odd_of(word);
      }
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        const uint32_t* at = b + p * f.panel;
        _mm_prefetch(reinterpret_cast<const char*>(at) + kAhead, _MM_HINT_T0);
        const __m512i words = _mm512_loadu_si512(at);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          evens[r][p] = _mm512_fmadd_ps(even[r], even_of(words), evens[r][p]);
          odds[r][p] = _mm512_fmadd_ps(odd[r], odd_of(words), odds[r][p]);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p)
        sums[r][p] = _mm512_add_ps(sums[r][p], _mm512_add_ps(evens[r][p], odds[r][p]));
    }
  }
}

// How many panels rows take at a time, as many as registers hold sums of.
constexpr int kPanels = 4;

template <int R, int P>
void plain_panels(const GemmBlock& g, int panel) {
  float* c = g.c + int64_t{panel} * kPanel;
  __m512 sums[R][P];
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p)
      sums[r][p] =
          g.add ? _mm512_loadu_ps(c + r * g.ldc + int64_t{p} * kPanel) : _mm512_setzero_ps();
  const auto* first = static_cast<const uint16_t*>(g.b) + panel * g.panel_stride;
  {
    const FlushSubnormals flush;
    multiply<R, P>({reinterpret_cast<const uint32_t*>(first), g.panel_stride / 2, g.k / 2,
                    static_cast<const uint16_t*>(g.a), g.lda},
                   sums);
  }
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) _mm512_storeu_ps(c + r * g.ldc + int64_t{p} * kPanel, sums[r][p]);
}

template <int R>
void plain_rows(const GemmBlock& g) {
  if (g.rows < R) {
    if constexpr (R > 1) plain_rows<R - 1>(g);
    return;
  }
  int p = 0;
  for (; p + kPanels <= g.panels; p += kPanels) plain_panels<R, kPanels>(g, p);
  for (; p < g.panels; p += 2) plain_panels<R, 2>(g, p);
}

}  // namespace

void plain_rows_amx(const GemmBlock& g) { plain_rows<kFewRowsAmx>(g); }

}  // namespace skiff::cpu

#include <immintrin.h>
#include <string.h>

#include "ops/cpu/isa/kernels.h"

namespace skiff::cpu {
namespace {

constexpr int kRows = 12;
constexpr int64_t kKBlock = 1024;
// Elements of a panel that are asked for ahead of their use when it is read once.
constexpr int64_t kAhead = int64_t{8} * 2 * kPanel;

struct Tile {
  const uint16_t* a;
  int64_t lda;
  const uint16_t* b;
  int64_t panel_stride;
  int64_t k;
  float* c;
  int64_t ldc;
  bool add;
};

inline __m512bh pair(const uint16_t* p) {
  int both;
  memcpy(&both, p, sizeof both);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(both));
}

// VDPBF16PS adds two products at a time to each running sum, subnormals taken as zero.
template <int R, bool kStream>
void tile_rows(const Tile& t) {
  __m512 sum[R][2];
  for (int r = 0; r < R; ++r)
    for (int64_t p = 0; p < 2; ++p)
      sum[r][p] = t.add ? _mm512_loadu_ps(t.c + r * t.ldc + p * kPanel) : _mm512_setzero_ps();
  const uint16_t* b = t.b;
  for (int64_t i = 0; i < t.k; i += 2, b += int64_t{2} * kPanel) {
    if constexpr (kStream) {
      _mm_prefetch(reinterpret_cast<const char*>(b + kAhead), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(b + kAhead + t.panel_stride), _MM_HINT_T0);
    }
    const auto w0 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b));
    const auto w1 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + t.panel_stride));
    for (int r = 0; r < R; ++r) {
      const __m512bh x = pair(t.a + r * t.lda + i);
      sum[r][0] = _mm512_dpbf16_ps(sum[r][0], x, w0);
      sum[r][1] = _mm512_dpbf16_ps(sum[r][1], x, w1);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int64_t p = 0; p < 2; ++p) _mm512_storeu_ps(t.c + r * t.ldc + p * kPanel, sum[r][p]);
}

template <bool kStream, int R = kRows>
void tile(const Tile& t, int64_t rows) {
  if (rows >= R) return tile_rows<R, kStream>(t);
  if constexpr (R > 1) tile<kStream, R - 1>(t, rows);
}

}  // namespace

void gemm_bf16_avx512bf16(const GemmBlock& g) {
  const auto* a = static_cast<const uint16_t*>(g.a);
  const auto* b = static_cast<const uint16_t*>(g.b);
  const bool once = g.rows <= kRows;
  const auto multiply = once ? &tile<true> : &tile<false>;
  const int64_t block = once ? g.k : kKBlock;
  for (int64_t i = 0; i < g.k; i += block)
    for (int64_t r = 0; r < g.rows; r += kRows)
      for (int64_t p = 0; p < g.panels; p += 2)
        multiply({a + r * g.lda + i, g.lda, b + p * g.panel_stride + i * kPanel, g.panel_stride,
                  block < g.k - i ? block : g.k - i, g.c + r * g.ldc + p * kPanel, g.ldc,
                  g.add || i > 0},
                 g.rows - r);
}

}  // namespace skiff::cpu

// ops/cpu/isa/gemm_body.h -- products against packed panels, for any vector type. Include after
// one vec_<isa>.h.
#pragma once
#include "ops/cpu/isa/kernels.h"

namespace skiff::cpu {
namespace {

// Inputs per cache block: a tile's rows stay in the first-level cache while the panels pass.
// Blocks add into the same running sums, so they do not change a bit.
constexpr int64_t kKBlock = 512;

struct TileF32 {
  const float* a;
  int64_t lda;
  const float* b;
  int64_t b_row, b_vec;  // elements from one input to the next, from one vector to the next
  int64_t k;
  float* c;
  int64_t ldc;
  bool add;  // c holds a partial sum to continue
};

template <int R, int V>
void tile_start(F (&sum)[R][V], const float* c, int64_t ldc, bool add) {
  for (int r = 0; r < R; ++r)
    for (int64_t v = 0; v < V; ++v) sum[r][v] = add ? load(c + r * ldc + v * kW) : set1(0);
}
template <int R, int V>
void tile_finish(const F (&sum)[R][V], float* c, int64_t ldc) {
  for (int r = 0; r < R; ++r)
    for (int64_t v = 0; v < V; ++v) store(c + r * ldc + v * kW, sum[r][v]);
}

// A register tile of R rows and V vectors of columns.
template <int R, int V>
void tile_f32_rows(const TileF32& t) {
  F sum[R][V];
  tile_start<R, V>(sum, t.c, t.ldc, t.add);
  const float* b = t.b;
  for (int64_t i = 0; i < t.k; ++i, b += t.b_row) {
    F w[V];
    for (int v = 0; v < V; ++v) w[v] = load(b + v * t.b_vec);
    for (int r = 0; r < R; ++r) {
      const F x = set1(t.a[r * t.lda + i]);
      for (int v = 0; v < V; ++v) sum[r][v] = fma(x, w[v], sum[r][v]);
    }
  }
  tile_finish<R, V>(sum, t.c, t.ldc);
}

template <int V, int R = kTileRows>
void tile_f32(const TileF32& t, int64_t rows) {
  if (rows >= R) return tile_f32_rows<R, V>(t);
  if constexpr (R > 1) tile_f32<V, R - 1>(t, rows);
}

// bf16 weights in pairs of inputs, f32 rows.
struct TileBf16 {
  const float* a;
  int64_t lda;
  const uint16_t* b;
  int64_t b_vec;
  int64_t k;
  float* c;
  int64_t ldc;
  bool add;
};

// A register tile of R rows and V vectors of columns.
template <int R, int V>
void tile_bf16_rows(const TileBf16& t) {
  F sum[R][V];
  tile_start<R, V>(sum, t.c, t.ldc, t.add);
  const uint16_t* b = t.b;
  for (int64_t i = 0; i < t.k; i += 2, b += int64_t{2} * kPanel) {
    Pair w[V];
    for (int v = 0; v < V; ++v) w[v] = load_pair(b + v * t.b_vec);
    for (int r = 0; r < R; ++r) {
      const F even = set1(t.a[r * t.lda + i]), odd = set1(t.a[r * t.lda + i + 1]);
      for (int v = 0; v < V; ++v) {
        sum[r][v] = fma(even, w[v].even, sum[r][v]);
        sum[r][v] = fma(odd, w[v].odd, sum[r][v]);
      }
    }
  }
  tile_finish<R, V>(sum, t.c, t.ldc);
}

template <int V, int R = kTileRowsBf16>
void tile_bf16(const TileBf16& t, int64_t rows) {
  if (rows >= R) return tile_bf16_rows<R, V>(t);
  if constexpr (R > 1) tile_bf16<V, R - 1>(t, rows);
}

// Calls f(j, V) for tiles of V vectors from column j on; cols is a multiple of two vectors.
template <class Do>
void for_each_tile(int64_t cols, Do f) {
  constexpr int64_t kWide = int64_t{kTileVecs} * kW, kNarrow = int64_t{2} * kW;
  int64_t j = 0;
  for (; j + kWide <= cols; j += kWide) f.template operator()<kTileVecs>(j);
  for (; j < cols; j += kNarrow) f.template operator()<2>(j);
}

// Where column j starts in a group of panels; `unit` is the elements that a column takes per
// stored line. All vectors of a tile are as far apart as the first two.
inline int64_t column(const GemmBlock& g, int64_t j, int unit) {
  return j / kPanel * g.panel_stride + j % kPanel * unit;
}
inline int64_t vector_step(const GemmBlock& g, int unit) {
  return column(g, kW, unit) - column(g, 0, unit);
}

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

void gemm_f32(const GemmBlock& g) {
  const auto* a = static_cast<const float*>(g.a);
  const auto* b = static_cast<const float*>(g.b);
  const int64_t block = g.rows <= kTileRows ? g.k : kKBlock;
  for (int64_t i = 0; i < g.k; i += block)
    for (int64_t r = 0; r < g.rows; r += kTileRows)
      for_each_tile(int64_t{g.panels} * kPanel, [&]<int V>(int64_t j) {
        tile_f32<V>(
            {a + r * g.lda + i, g.lda, b + column(g, j, 1) + i * kPanel, kPanel, vector_step(g, 1),
             smaller(block, g.k - i), g.c + r * g.ldc + j, g.ldc, g.add || i > 0},
            g.rows - r);
      });
}

void gemm_bf16(const GemmBlock& g) {
  const auto* a = static_cast<const float*>(g.a);
  const auto* b = static_cast<const uint16_t*>(g.b);
  const int64_t block = g.rows <= kTileRowsBf16 ? g.k : kKBlock;
  for (int64_t i = 0; i < g.k; i += block)
    for (int64_t r = 0; r < g.rows; r += kTileRowsBf16)
      for_each_tile(int64_t{g.panels} * kPanel, [&]<int V>(int64_t j) {
        tile_bf16<V>({a + r * g.lda + i, g.lda, b + column(g, j, 2) + i * kPanel, vector_step(g, 2),
                      smaller(block, g.k - i), g.c + r * g.ldc + j, g.ldc, g.add || i > 0},
                     g.rows - r);
      });
}

}  // namespace
}  // namespace skiff::cpu

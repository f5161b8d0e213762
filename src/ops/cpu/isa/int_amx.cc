#include <string.h>

#include "ops/cpu/isa/intrinsics.h"
#include "ops/cpu/isa/pair_tiles.h"

namespace skiff::cpu {
namespace {

// Up to this number of rows, reading codes takes longer than multiplying them by VPDPBUSD.
constexpr int kFewIntRows = 8;

// TDPBSUD multiplies rows of signed bytes by a tile of unsigned ones, whose rows are lines of
// codes: four inputs of each of 16 outputs.
template <bool kNibbles>
struct IntegerCodes {
  using Sum = int32_t;
  static constexpr int64_t kBlockTiles = 8;
  static constexpr int64_t kMostLines = kBlockTiles * kTile / (kNibbles ? 2 : 1);
  static constexpr int64_t kInputBytes = 1;
  static constexpr int64_t kLineBytes = kNibbles ? 8 : 4;  // bytes of a row in a line

  PairTiles tiles(const PairCodes& codes, PairLines<kBlockTiles>& to) const {
    if constexpr (kNibbles) return nibbles(codes, to);
    // Whole tiles are read where they lie; the last lines of a sum are filled up with zeros.
    if (codes.lines % kTile == 0)
      return {{codes.first, codes.first + kTileBytes}, codes.stride, codes.lines / kTile};
    for (int p = 0; p < 2; ++p)
      for (int64_t i = 0; i < codes.lines; ++i)
        memcpy(to.panel[p][i], codes.first + i * codes.stride + int64_t{p} * kTileBytes,
               kTileBytes);
    return to.tiles(codes.lines);
  }
  // A line of nibbles becomes two lines, of the low and of the high ones.
  static PairTiles nibbles(const PairCodes& codes, PairLines<kBlockTiles>& to) {
    const __m512i low = _mm512_set1_epi8(15);
    for (int p = 0; p < 2; ++p)
      for (int64_t i = 0; i < codes.lines; ++i) {
        const uint8_t* line = codes.first + i * codes.stride + int64_t{p} * kTileBytes;
        _mm_prefetch(reinterpret_cast<const char*>(line) + codes.ahead, _MM_HINT_T1);
        const __m512i u = _mm512_loadu_si512(line);
        _mm512_store_si512(to.panel[p][2 * i], _mm512_and_si512(u, low));
        _mm512_store_si512(to.panel[p][2 * i + 1], _mm512_and_si512(_mm512_srli_epi32(u, 4), low));
      }
    return to.tiles(2 * codes.lines);
  }
  static void top() {
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
  }
  static void bottom() {
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
  }
  static __m512 value(const CodeRows& g, const CodeSum& s, int64_t row, const int32_t* sum) {
    const float inputs = g.values[row * g.value_stride + s.inputs];
    const __m512i offset = _mm512_set1_epi32(g.offset * static_cast<int32_t>(inputs));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_loadu_si512(sum), offset));
  }
};

}  // namespace

void int_rows_amx(const CodeRows& g) {
  if (g.rows <= kFewIntRows) return int_rows_avx512vnni(g);
  is_nibble(g.codes) ? multiply_codes(g, IntegerCodes<true>{})
                     : multiply_codes(g, IntegerCodes<false>{});
}

}  // namespace skiff::cpu

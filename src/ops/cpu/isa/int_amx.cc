#include "ops/cpu/isa/band_tiles.h"
#include "ops/cpu/isa/intrinsics.h"
#include "ops/cpu/isa/pair_tiles.h"

namespace skiff::cpu {
namespace {

// TDPBSUD multiplies rows of signed bytes by a tile of unsigned ones, whose rows are lines of
// codes: four inputs of each of 16 outputs.
template <bool kNibbles>
struct IntegerCodes {
  using Sum = int32_t;
  static constexpr int64_t kBlockTiles = 8;
  static constexpr int64_t kLines = kNibbles ? 2 : 1;
  static constexpr int64_t kMostLines = kBlockTiles * kTile / kLines;
  static constexpr int64_t kInputBytes = 1;
  static constexpr int64_t kLineBytes = 4 * kLines;  // bytes of a row in a line

  // A line of nibbles becomes two lines, of the low and of the high ones.
  static void write(uint8_t (*to)[kTileBytes], const uint8_t* line) {
    const __m512i low = _mm512_set1_epi8(15), u = _mm512_loadu_si512(line);
    _mm512_store_si512(to[0], kNibbles ? _mm512_and_si512(u, low) : u);
    if constexpr (kNibbles)
      _mm512_store_si512(to[1], _mm512_and_si512(_mm512_srli_epi32(u, 4), low));
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

template <class Kind>
void multiply(const CodeRows& g, const Kind& kind) {
  g.rows <= kTile ? multiply_bands(g, kind) : multiply_codes(g, kind);
}

}  // namespace

void int_rows_amx(const CodeRows& g) {
  is_nibble(g.codes) ? multiply(g, IntegerCodes<true>{}) : multiply(g, IntegerCodes<false>{});
}

}  // namespace skiff::cpu

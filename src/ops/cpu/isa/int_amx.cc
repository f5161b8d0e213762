#include <string.h>

#include "ops/cpu/isa/bands.h"
#include "ops/cpu/isa/intrinsics.h"
#include "ops/cpu/isa/pair_tiles.h"
#include "ops/cpu/isa/scaled_sums.h"

namespace skiff::cpu {
namespace {

// TDPBSUD multiplies rows of signed bytes by a tile of unsigned ones, whose rows are lines of
// codes: four inputs of each of 16 outputs.
struct SignedByUnsigned {
  static void top() {
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
  }
  static void bottom() {
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
  }
};

// Up to this number of rows, reading codes takes longer than multiplying them by VPDPBUSD.
constexpr int kFewIntRows = 8;
// All rows meet so many tiles of each panel before the next ones.
constexpr int64_t kBlockTiles = 16;
using Sums = PairSums<int32_t>;
using Lines = PairLines<kBlockTiles>;

// The codes of a pair of panels from a line of theirs on.
struct PairCodes {
  const uint8_t* first;
  int64_t stride, left;  // bytes from one line to the next, and how many lines there are
  int64_t ahead;         // see PairTiles
};

// Whole tiles are read where they lie; the last lines of a sum are filled up with zeros.
PairTiles bytes_of(const PairCodes& l, Lines& copy) {
  if (l.left >= kTile) {
    const int64_t whole = l.left / kTile;
    return {{l.first, l.first + kTileBytes},
            l.stride,
            whole < kBlockTiles ? whole : kBlockTiles,
            l.ahead};
  }
  for (int p = 0; p < 2; ++p)
    for (int64_t i = 0; i < l.left; ++i)
      memcpy(copy.panel[p][i], l.first + i * l.stride + int64_t{p} * kTileBytes, kTileBytes);
  return copy.tiles(l.left);
}

// A line of nibbles becomes two lines, of the low and of the high ones.
PairTiles nibbles_of(const PairCodes& l, Lines& out) {
  constexpr int64_t kMost = kBlockTiles * kTile / 2;
  const int64_t lines = l.left < kMost ? l.left : kMost;
  const __m512i low = _mm512_set1_epi8(15);
  for (int p = 0; p < 2; ++p)
    for (int64_t i = 0; i < lines; ++i) {
      const uint8_t* line = l.first + i * l.stride + int64_t{p} * kTileBytes;
      _mm_prefetch(reinterpret_cast<const char*>(line) + l.ahead, _MM_HINT_T1);
      const __m512i u = _mm512_loadu_si512(line);
      _mm512_store_si512(out.panel[p][2 * i], _mm512_and_si512(u, low));
      _mm512_store_si512(out.panel[p][2 * i + 1], _mm512_and_si512(_mm512_srli_epi32(u, 4), low));
    }
  return out.tiles(2 * lines);
}

void add_scaled(const CodeRows& g, const Part& t, const CodeSum& s, const Sums& sums, bool opens) {
  for (int64_t r = 0; r < t.rows; ++r) {
    const float inputs = g.values[(t.row + r) * g.value_stride + s.inputs];
    const __m512i offset = _mm512_set1_epi32(g.offset * static_cast<int32_t>(inputs));
    for (int64_t p = 0; p < 2; ++p) {
      const __m512i sum = _mm512_sub_epi32(_mm512_load_si512(sums.at[r] + p * kPanel), offset);
      add_scaled(g, s, t.row + r, t.panel + p, _mm512_cvtepi32_ps(sum), opens);
    }
  }
}

template <bool kNibbles>
void int_rows(const CodeRows& g) {
  constexpr int64_t kLineInputs = kNibbles ? 8 : 4;
  Sums sums;
  Lines lines;
  int64_t configured = 0;
  for_pairs(g, [&](const Part& part, const uint8_t* first, int64_t step, int64_t ahead) {
    for (int64_t n = 0; n < g.count; ++n) {
      const CodeSum& s = g.sums[n];
      const auto* a = static_cast<const uint8_t*>(g.a) + part.row * g.lda + s.begin;
      for (int64_t i = 0; i < s.lines;) {
        const PairCodes codes = {first + (s.line + i) * step, step, s.lines - i, ahead};
        const PairTiles tiles = kNibbles ? nibbles_of(codes, lines) : bytes_of(codes, lines);
        multiply<SignedByUnsigned>({a + i * kLineInputs, g.lda, part.rows}, tiles, sums, i > 0,
                                   configured);
        i += tiles.count * kTile / (kNibbles ? 2 : 1);
      }
      add_scaled(g, part, s, sums, g.first && n == 0);
    }
  });
  _tile_release();
}

}  // namespace

void int_rows_amx(const CodeRows& g) {
  if (g.rows <= kFewIntRows) return int_rows_avx512vnni(g);
  is_nibble(g.codes) ? int_rows<true>(g) : int_rows<false>(g);
}

}  // namespace skiff::cpu

#include "ops/cpu/isa/bands.h"
#include "ops/cpu/isa/code_readers.h"
#include "ops/cpu/isa/intrinsics.h"
#include "ops/cpu/isa/pair_tiles.h"
#include "ops/cpu/isa/scaled_sums.h"

namespace skiff::cpu {
namespace {

struct Bf16Tiles {
  static void top() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
  static void bottom() {
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
};

// The values of so many tiles of each panel stay in the first cache while all rows meet them.
constexpr int64_t kBlockTiles = 8;
using Sums = PairSums<float>;
using Lines = PairLines<kBlockTiles>;

void add_scaled(const CodeRows& g, const Part& t, const CodeSum& s, const Sums& sums, bool opens) {
  for (int64_t r = 0; r < t.rows; ++r)
    for (int64_t p = 0; p < 2; ++p)
      add_scaled(g, s, t.row + r, t.panel + p, _mm512_load_ps(sums.at[r] + p * kPanel), opens);
}

template <class Reader>
void code_rows(const CodeRows& g, const Reader& reader) {
  constexpr int64_t kLines = Reader::kLines, kMost = kBlockTiles * kTile / kLines;
  Sums sums;
  Lines lines;
  int64_t configured = 0;
  for_pairs(g, [&](const Part& part, const uint8_t* first, int64_t step, int64_t ahead) {
    for (int64_t n = 0; n < g.count; ++n) {
      const CodeSum& s = g.sums[n];
      const auto* a = static_cast<const uint16_t*>(g.a) + part.row * g.lda + s.begin;
      for (int64_t i = 0; i < s.lines; i += kMost) {
        const int64_t some = s.lines - i < kMost ? s.lines - i : kMost;
        for (int p = 0; p < 2; ++p)
          for (int64_t j = 0; j < some; ++j) {
            const uint8_t* line = first + (s.line + i + j) * step + int64_t{p} * kTileBytes;
            _mm_prefetch(reinterpret_cast<const char*>(line) + ahead, _MM_HINT_T1);
            __m512i values[kLines];
            reader.read(values, _mm512_loadu_si512(line));
            for (int64_t v = 0; v < kLines; ++v)
              _mm512_store_si512(lines.panel[p][j * kLines + v], values[v]);
          }
        const auto* rows = reinterpret_cast<const uint8_t*>(a + i * 2 * kLines);
        multiply<Bf16Tiles>({rows, g.lda * 2, part.rows}, lines.tiles(some * kLines), sums, i > 0,
                            configured);
      }
      add_scaled(g, part, s, sums, g.first && n == 0);
    }
  });
  _tile_release();
}

}  // namespace

void code_rows_amx(const CodeRows& g) {
  if (g.rows <= kFewRowsAmx) return few_rows_amx(g);
  with_reader<IntelCores>(g.codes, [&](const auto& reader) { code_rows(g, reader); });
}

}  // namespace skiff::cpu

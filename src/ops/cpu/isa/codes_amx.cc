#include "ops/cpu/isa/code_readers.h"
#include "ops/cpu/isa/intrinsics.h"
#include "ops/cpu/isa/pair_tiles.h"

namespace skiff::cpu {
namespace {

// Codes as tiles of bf16.
template <class Reader>
struct Bf16Codes {
  using Sum = float;
  // The values of so many tiles of each panel stay in the first cache while all rows meet them.
  static constexpr int64_t kBlockTiles = 8;
  static constexpr int64_t kMostLines = kBlockTiles * kTile / Reader::kLines;
  static constexpr int64_t kInputBytes = 2;
  static constexpr int64_t kLineBytes = int64_t{4} * Reader::kLines;  // bytes of a row in a line

  const Reader& reader;

  PairTiles tiles(const PairCodes& codes, PairLines<kBlockTiles>& to) const {
    for (int p = 0; p < 2; ++p)
      for (int64_t i = 0; i < codes.lines; ++i) {
        const uint8_t* line = codes.first + i * codes.stride + int64_t{p} * kTileBytes;
        _mm_prefetch(reinterpret_cast<const char*>(line) + codes.ahead, _MM_HINT_T1);
        __m512i values[Reader::kLines];
        reader.read(values, _mm512_loadu_si512(line));
        for (int64_t v = 0; v < Reader::kLines; ++v)
          _mm512_store_si512(to.panel[p][i * Reader::kLines + v], values[v]);
      }
    return to.tiles(codes.lines * Reader::kLines);
  }
  static void top() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
  static void bottom() {
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  static __m512 value(const CodeRows&, const CodeSum&, int64_t /*row*/, const float* sum) {
    return _mm512_loadu_ps(sum);
  }
};

}  // namespace

void code_rows_amx(const CodeRows& g) {
  if (g.rows <= kFewRowsAmx) return few_rows_amx(g);
  with_reader<IntelCores>(g.codes, [&]<class Reader>(const Reader& reader) {
    multiply_codes(g, Bf16Codes<Reader>{reader});
  });
}

}  // namespace skiff::cpu

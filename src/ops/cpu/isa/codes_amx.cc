#include "ops/cpu/isa/band_tiles.h"
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
  static constexpr int64_t kLines = Reader::kLines;
  static constexpr int64_t kMostLines = kBlockTiles * kTile / kLines;
  static constexpr int64_t kInputBytes = 2;
  static constexpr int64_t kLineBytes = 4 * kLines;  // bytes of a row in a line

  Reader reader;

  void write(uint8_t (*to)[kTileBytes], const uint8_t* line) const {
    __m512i values[kLines];
    reader.read(values, _mm512_loadu_si512(line));
    for (int64_t i = 0; i < kLines; ++i) _mm512_store_si512(to[i], values[i]);
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
  with_reader<IntelCores>(g.codes, [&]<class Reader>(const Reader& reader) {
    const Bf16Codes<Reader> kind{reader};
    g.rows <= kTile ? multiply_bands(g, kind) : multiply_codes(g, kind);
  });
}

}  // namespace skiff::cpu

// ops/cpu/isa/pair_tiles.h -- AMX products of any number of rows and the tiles of two panels, whose
// sums stay in the first cache until they are scaled.
#pragma once
#include "ops/cpu/isa/bands.h"
#include "ops/cpu/isa/scaled_sums.h"
#include "ops/cpu/isa/tiles.h"

namespace skiff::cpu {
namespace {

constexpr int kRowsAtOnce = 256;
constexpr int kPairColumns = 2 * kTile;
// Inputs of all rows that stay in a core's own cache while panels pass, in bytes of a row.
constexpr int64_t kRunBytes = 2048;

// Sums of 32 bits, of rows and the columns of both panels.
template <class Sum>
struct PairSums {
  alignas(64) Sum at[kRowsAtOnce][kPairColumns];
};

// Tiles of a pair of panels. `stride` is from one of their lines to the next, in bytes.
struct PairTiles {
  const uint8_t* panel[2];
  int64_t stride, count;
};

// Lines of the next pair of panels, which the cache is asked for while this one is multiplied.
struct Ahead {
  const uint8_t* at;
  int64_t stride, lines;  // bytes, and lines of each panel

  // Asks for more at once than rows need, because tiles of rows wait behind these lines, too.
  void ask() {
    constexpr int kAtOnce = 2;
    for (int n = 0; n < kAtOnce && lines > 0; ++n, --lines, at += stride) {
      _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(at) + kTileBytes, _MM_HINT_T0);
    }
  }
};

// Lines that are written before they are tiles.
template <int64_t kTiles>
struct PairLines {
  alignas(64) uint8_t panel[2][kTiles * kTile][kTileBytes];

  // Fills the last tile up from the line `count` of each panel on.
  PairTiles tiles(int64_t count) {
    const int64_t tiles = (count + kTile - 1) / kTile;
    for (auto& lines : panel)
      for (int64_t i = count; i < tiles * kTile; ++i)
        for (uint8_t& byte : lines[i]) byte = 0;
    // GCC 12 does not know that loads of tiles read memory, and could move stores behind them.
    asm volatile("" : : "r"(this) : "memory");
    return {{panel[0][0], panel[1][0]}, kTileBytes, tiles};
  }
};

// The codes of a pair of panels from a line on.
struct PairCodes {
  const uint8_t* first;
  int64_t stride, lines;  // the stride is in bytes
  int64_t ahead = 0;      // bytes to lines that the cache is asked for while these are read
};

// Codes that are lines of whole tiles already are read where they lie.
template <class Kind>
PairTiles tiles_of(const Kind& kind, const PairCodes& codes, PairLines<Kind::kBlockTiles>& to) {
  if (Kind::kLines == 1 && codes.lines % kTile == 0)
    return {{codes.first, codes.first + kTileBytes}, codes.stride, codes.lines / kTile};
  for (int p = 0; p < 2; ++p)
    for (int64_t i = 0; i < codes.lines; ++i) {
      const uint8_t* line = codes.first + i * codes.stride + int64_t{p} * kTileBytes;
      _mm_prefetch(reinterpret_cast<const char*>(line) + codes.ahead, _MM_HINT_T1);
      kind.write(to.panel[p] + i * Kind::kLines, line);
    }
  return to.tiles(codes.lines * Kind::kLines);
}

// Rows of an operand, whose tiles take kTileBytes of each at a time.
struct OperandRows {
  const uint8_t* first;
  int64_t stride, count;  // the stride is in bytes
};

// Sums in memory, of 32 bits.
template <class Sum>
struct Sums {
  Sum* at;
  int64_t stride;  // elements
};

// Up to kTile rows or, with kBoth, more, up to kTileRows. Kind names the instruction.
template <class Kind, bool kBoth>
void multiply_rows(const OperandRows& a, const PairTiles& b, Sums<typename Kind::Sum> sums,
                   bool add, Ahead& ahead) {
  const auto stride = static_cast<size_t>(sums.stride) * sizeof *sums.at;
  auto *right = sums.at + kTile, *low = sums.at + kTile * sums.stride, *low_right = low + kTile;
  const uint8_t* bottom = a.first + kTile * a.stride;
  if (add) {
    _tile_loadd(0, sums.at, stride);
    _tile_loadd(1, right, stride);
    if constexpr (kBoth) _tile_loadd(2, low, stride);
    if constexpr (kBoth) _tile_loadd(3, low_right, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kBoth) _tile_zero(2);
    if constexpr (kBoth) _tile_zero(3);
  }
  for (int64_t i = 0; i < b.count; ++i) {
    const int64_t line = i * kTile * b.stride;
    ahead.ask();
    _tile_loadd(4, a.first + i * kTileBytes, a.stride);
    _tile_loadd(6, b.panel[0] + line, b.stride);
    if constexpr (kBoth) _tile_loadd(5, bottom + i * kTileBytes, a.stride);
    _tile_loadd(7, b.panel[1] + line, b.stride);
    Kind::top();
    if constexpr (kBoth) Kind::bottom();
  }
  _tile_stored(0, sums.at, stride);
  _tile_stored(1, right, stride);
  if constexpr (kBoth) _tile_stored(2, low, stride);
  if constexpr (kBoth) _tile_stored(3, low_right, stride);
  // GCC 12 does not know that stores of tiles write memory.
  asm volatile("" : : : "memory");
}

// Lines of a sum that are multiplied at once.
struct Piece {
  const CodeSum* sum;
  int64_t line, lines;
  bool opens, closes;
};

// A place among the lines of a call's sums, whose pieces have at most kMostLines.
template <int64_t kMostLines>
struct Cursor {
  int64_t sum = 0, line = 0;

  Piece piece(const CodeRows& g) const {
    const CodeSum& s = g.sums[sum];
    const int64_t left = s.lines - line, some = left < kMostLines ? left : kMostLines;
    return {&s, line, some, line == 0, some == left};
  }
  void pass(const Piece& p) {
    line = p.closes ? 0 : line + p.lines;
    if (p.closes) ++sum;
  }
  bool operator==(const Cursor& other) const { return sum == other.sum && line == other.line; }
};

// Products of some rows with all codes of a call. Kind says how a line of codes becomes kLines
// lines of a tile, and how tiles are multiplied. A call's only sum goes on in the result's own
// memory, of which each run takes all panels; sums that are many close within a run.
template <class Kind>
class PairProduct {
 public:
  using Sum = typename Kind::Sum;
  PairProduct(const CodeRows& g, const Kind& kind, int64_t row, int64_t rows)
      : g_(g), kind_(kind), row_(row), rows_(rows), in_result_(g.first && g.count == 1) {}

  void run() {
    Place from, to;
    while (from.sum < g_.count) {
      end_run(to);
      for (int64_t panel = 0; panel < g_.panels; panel += 2)
        for (Place at = from; !(at == to);) {
          const Piece p = at.piece(g_);
          add(p, panel);
          at.pass(p);
        }
      from = to;
    }
  }

 private:
  using Place = Cursor<Kind::kMostLines>;

  // Moves to the end of the run that begins there. It is in the middle of a sum only if that goes
  // on in the result. Few rows take all inputs of a pair of panels at once, as memory has them.
  void end_run(Place& to) const {
    const int64_t most = kRunBytes / Kind::kLineBytes;
    for (int64_t lines = 0; to.sum < g_.count;) {
      const Piece p = to.piece(g_);
      to.pass(p);
      lines += p.lines;
      const bool enough = rows_ > kTileRows && lines >= most;
      if (enough && (p.closes || in_result_)) return;
    }
  }
  void add(const Piece& p, int64_t panel) {
    const PairCodes codes = codes_of(p, panel);
    const PairTiles tiles = tiles_of(kind_, codes, lines_);
    const PairCodes next = panel + 2 < g_.panels ? codes_of(p, panel + 2) : PairCodes{};
    Ahead ahead = {next.first, next.stride, next.lines};
    const auto* a = static_cast<const uint8_t*>(g_.a) + row_ * g_.lda * Kind::kInputBytes +
                    p.sum->begin * Kind::kInputBytes + p.line * Kind::kLineBytes;
    const int64_t stride = g_.lda * Kind::kInputBytes;
    for (int64_t r = 0; r < rows_; r += kTileRows) {
      const int64_t left = rows_ - r, rows = left < kTileRows ? left : kTileRows;
      if (rows != configured_) configure_tiles(rows);
      configured_ = rows;
      (rows > kTile ? multiply_rows<Kind, true>
                    : multiply_rows<Kind, false>)({a + r * stride, stride, rows}, tiles,
                                                  sums_of(p, panel, r), !p.opens, ahead);
      // Vectors scale the rows before while tiles work on these.
      if (p.closes && r > 0) scale(p, panel, r - kTileRows, kTileRows);
      if (p.closes && r + rows == rows_) scale(p, panel, r, rows);
    }
  }

  PairCodes codes_of(const Piece& p, int64_t panel) const {
    const LinePlace place = place_of(panel, g_.panels, g_.panel_words);
    const uint32_t* first = g_.b + place.first + (p.sum->line + p.line) * place.step;
    // Few rows leave no time to ask for lines while they are multiplied.
    constexpr int64_t kWidest = 384 << 10;  // bytes of a band, two of which a core's cache holds
    const int64_t band = g_.panel_words * (place.step / kPanel) * 4;
    const int64_t ahead = rows_ <= kTileRows && band <= kWidest ? band : 0;
    return {reinterpret_cast<const uint8_t*>(first), place.step * 4, p.lines, ahead};
  }
  // Sums that end where they begin take turns in memory.
  Sums<Sum> sums_of(const Piece& p, int64_t panel, int64_t r) {
    if (in_result_)
      return {reinterpret_cast<Sum*>(g_.c + (row_ + r) * g_.ldc + panel * kPanel), g_.ldc};
    return {own_.at[p.opens && p.closes ? r % (int64_t{2} * kTileRows) : r], kPairColumns};
  }
  void scale(const Piece& p, int64_t panel, int64_t r, int64_t rows) {
    const Sums<Sum> sums = sums_of(p, panel, r);
    const bool opens = g_.first && p.sum == g_.sums;
    for (int64_t n = 0; n < 2; ++n)
      add_scaled(g_, *p.sum, row_ + r, rows, panel + n, opens, [&](int64_t i) {
        return kind_.value(g_, *p.sum, row_ + r + i, sums.at + i * sums.stride + n * kPanel);
      });
  }

  const CodeRows& g_;
  const Kind& kind_;
  int64_t row_, rows_;
  bool in_result_;
  int64_t configured_ = 0;
  PairSums<Sum> own_;
  PairLines<Kind::kBlockTiles> lines_;
};

template <class Kind>
void multiply_codes(const CodeRows& g, const Kind& kind) {
  for (int64_t row = 0; row < g.rows; row += kRowsAtOnce)
    PairProduct<Kind>(g, kind, row, g.rows - row < kRowsAtOnce ? g.rows - row : kRowsAtOnce).run();
  _tile_release();
}

}  // namespace
}  // namespace skiff::cpu

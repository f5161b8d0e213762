// ops/cpu/isa/attend_rows.h -- rows of a cache as the tiles of attention.
#pragma once
#include "ops/cpu/isa/intrinsics.h"
#include "ops/cpu/isa/kernels.h"
#include "ops/cpu/isa/tiles.h"

namespace skiff::cpu {
namespace {

inline __mmask32 first_elements(int64_t n) {
  return n >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((1u << n) - 1);
}
inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Where one kv head's part of a position's row begins.
inline const uint8_t* head_of(const void* row, int64_t step, int head) {
  return static_cast<const uint8_t*>(row) + head * step;
}

// Parts of positions' rows that a core's own cache is asked for, line by line in the order of
// memory, while others are loaded.
struct Ahead {
  const void* const* row;
  int64_t rows, first, lines;  // where a part begins in its row, and its size
  int64_t line = 0;            // the next one of the first row

  void ask(int64_t most) {
    while (most > 0 && rows > 0) {
      const int64_t n = smaller(most, lines - line);
      const char* at = static_cast<const char*>(*row) + first + line * kTileBytes;
      for (int64_t i = 0; i < n; ++i) _mm_prefetch(at + i * kTileBytes, _MM_HINT_T1);
      most -= n;
      line += n;
      if (line < lines) continue;
      line = 0;
      ++row;
      --rows;
    }
  }
};
inline int64_t lines_of(int64_t bytes) { return (bytes + kTileBytes - 1) / kTileBytes; }

// The values of some heads, or the keys of the next positions.
Ahead values_of(const TileAttend& b, int head, int64_t heads) {
  return {b.v, b.keys, head * b.v_step, lines_of((heads - 1) * b.v_step + b.v_dim * int64_t{2})};
}
Ahead next_keys_of(const TileAttend& b, int head, int64_t heads) {
  return {b.next_k, b.ahead, head * b.k_step,
          lines_of((heads - 1) * b.k_step + b.dim * int64_t{2})};
}

// Keys of one head as the rows of tiles: from one of them to the next there are `stride` bytes.
struct KeyTiles {
  const uint8_t* first;
  int64_t stride;
};

// Returns how far apart keys lie if that is the same for a whole block and they fill tiles, else 0.
int64_t spacing(const TileAttend& b) {
  if (b.keys < kKvBlock || b.dim % 32 != 0) return 0;
  const auto at = [&](int j) { return static_cast<const uint8_t*>(b.k[j]); };
  const int64_t step = at(1) - at(0);
  for (int j = 2; j < kKvBlock; ++j)
    if (at(j) - at(j - 1) != step) return 0;
  return step;
}

// Copies keys side by side, and zeros behind the last element and the last key.
KeyTiles copy_keys(const TileAttend& b, int head) {
  const int64_t width = padded_dim(b.dim);
  for (int64_t j = 0; j < kKvBlock; ++j) {
    uint16_t* to = b.keys_at + j * width;
    if (j >= b.keys) {
      for (int64_t d = 0; d < width; d += 32) _mm512_store_si512(to + d, _mm512_setzero_si512());
      continue;
    }
    const auto* from = reinterpret_cast<const uint16_t*>(head_of(b.k[j], b.k_step, head));
    for (int64_t d = 0; d < width; d += 32)
      _mm512_store_si512(to + d, _mm512_maskz_loadu_epi16(first_elements(b.dim - d), from + d));
  }
  return {reinterpret_cast<const uint8_t*>(b.keys_at), width * 2};
}

KeyTiles keys_of(const TileAttend& b, int head, int64_t spacing) {
  return spacing > 0 ? KeyTiles{head_of(b.k[0], b.k_step, head), spacing} : copy_keys(b, head);
}

// The keys of a block whose values are weighed: as many as tiles hold, at least all of them.
inline int64_t weighed(const TileAttend& b) { return b.keys <= 32 ? 32 : kKvBlock; }

// Writes the values of two keys, or zeros, as neighbours: kWhole says that elements fill vectors.
template <bool kWhole>
void write_pair(const TileAttend& b, const uint16_t* even, const uint16_t* odd, uint16_t* to) {
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  const int64_t width = b.o_stride, dim = b.v_dim;
  for (int64_t d = 0; d < width; d += 32, to += int64_t{32} * kKvBlock) {
    const __mmask32 some = kWhole ? ~__mmask32{0} : first_elements(dim - d);
    const auto part = [&](const uint16_t* from) {
      if (from == nullptr) return _mm512_setzero_si512();
      return _mm512_permutexvar_epi64(
          order, kWhole ? _mm512_loadu_si512(from + d) : _mm512_maskz_loadu_epi16(some, from + d));
    };
    const __m512i first = part(even), second = part(odd);
    _mm512_store_si512(to, _mm512_unpacklo_epi16(first, second));
    _mm512_store_si512(to + int64_t{16} * kKvBlock, _mm512_unpackhi_epi16(first, second));
  }
}

// Writes values as tiles of 32 keys and 16 elements: [o_stride / 16][kKvBlock / 2][16][2].
template <bool kWhole>
void write_values(const TileAttend& b, int head, Ahead& ahead, int64_t lines) {
  const auto value = [&](int64_t key) {
    return reinterpret_cast<const uint16_t*>(head_of(b.v[key], b.v_step, head));
  };
  uint16_t* to = b.values_at;
  int64_t i = 0;
  for (; 2 * i + 1 < b.keys; ++i, to += 32) {
    ahead.ask(lines);
    write_pair<kWhole>(b, value(2 * i), value(2 * i + 1), to);
  }
  for (; 2 * i < weighed(b); ++i, to += 32)
    write_pair<kWhole>(b, 2 * i < b.keys ? value(2 * i) : nullptr, nullptr, to);
}
void load_values(const TileAttend& b, int head, Ahead& ahead, int64_t lines) {
  b.v_dim % 32 == 0 && b.o_stride == b.v_dim ? write_values<true>(b, head, ahead, lines)
                                             : write_values<false>(b, head, ahead, lines);
}

}  // namespace
}  // namespace skiff::cpu

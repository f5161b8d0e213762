// Attention to a block of positions in tiles. Keys are the rows of one factor and queries the
// columns of the other, so that keys need no transposition and a vector has one key's scores for
// sixteen queries: the softmax is computed across vectors, for queries of several kv heads at once
// where each has few. Whatever a query's company is, its sums are those of TDPBF16PS over 32
// elements of a key, or 32 keys, at a time.
#include "ops/cpu/isa/flush_subnormals.h"
#include "ops/cpu/isa/kernels.h"
#include "ops/cpu/isa/tile_softmax.h"
#include "ops/cpu/isa/tiles.h"

namespace skiff::cpu {
namespace {

constexpr int kPairs = kKvBlock / 2;

inline __mmask32 first_elements(int64_t n) {
  return n >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((1u << n) - 1);
}
inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// Where one kv head's part of a position's row begins.
inline const uint8_t* head_of(const void* row, int64_t step, int head) {
  return static_cast<const uint8_t*>(row) + head * step;
}

// Parts of positions' rows that the cache is asked for, line by line in the order of memory, while
// others are loaded.
struct Ahead {
  const void* const* row;
  int64_t rows, first, bytes;  // where a part begins in its row, and its size
  int64_t line = 0;            // bytes from where the next part begins

  void ask(int64_t lines) {
    for (; lines > 0 && rows > 0; --lines) {
      _mm_prefetch(static_cast<const char*>(*row) + first + line, _MM_HINT_T0);
      line += kTileBytes;
      if (line < bytes) continue;
      line = 0;
      ++row;
      --rows;
    }
  }
};

// The values of some heads, or the keys of the next positions.
Ahead values_of(const TileAttend& b, int head, int64_t heads) {
  return {b.v, b.keys, head * b.v_step, (heads - 1) * b.v_step + b.v_dim * int64_t{2}};
}
Ahead next_keys_of(const TileAttend& b, int head, int64_t heads) {
  return {b.next_k, b.ahead, head * b.k_step, (heads - 1) * b.k_step + b.dim * int64_t{2}};
}
inline int64_t lines_of(int64_t bytes) { return (bytes + kTileBytes - 1) / kTileBytes; }

// Copies keys side by side, and zeros behind the last element and the last key.
void load_keys(const TileAttend& b, int head, Ahead& ahead) {
  const int64_t width = padded_dim(b.dim);
  for (int64_t j = 0; j < kKvBlock; ++j) {
    uint16_t* to = b.keys_at + j * width;
    if (j >= b.keys) {
      for (int64_t d = 0; d < width; d += 32) _mm512_store_si512(to + d, _mm512_setzero_si512());
      continue;
    }
    const auto* from = reinterpret_cast<const uint16_t*>(head_of(b.k[j], b.k_step, head));
    ahead.ask(lines_of(int64_t{b.v_dim} * 2));
    for (int64_t d = 0; d < width; d += 32)
      _mm512_store_si512(to + d, _mm512_maskz_loadu_epi16(first_elements(b.dim - d), from + d));
  }
}

// Brings 32 elements of a value into the order in which unpacking makes neighbours of neighbours.
inline __m512i value_part(const TileAttend& b, int64_t key, int head, int64_t d) {
  if (key >= b.keys) return _mm512_setzero_si512();
  const auto* row = reinterpret_cast<const uint16_t*>(head_of(b.v[key], b.v_step, head));
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  return _mm512_permutexvar_epi64(order,
                                  _mm512_maskz_loadu_epi16(first_elements(b.v_dim - d), row + d));
}

// Writes values as tiles of 32 keys and 16 elements: [o_stride / 16][kKvBlock / 2][16][2].
void load_values(const TileAttend& b, int head, Ahead& ahead) {
  for (int64_t i = 0; i < kPairs; ++i) {
    ahead.ask(2 * lines_of(int64_t{b.dim} * 2));
    for (int64_t d = 0; d < b.o_stride; d += 32) {
      const __m512i even = value_part(b, 2 * i, head, d), odd = value_part(b, 2 * i + 1, head, d);
      uint16_t* to = b.values_at + d * kKvBlock + i * 32;
      _mm512_store_si512(to, _mm512_unpacklo_epi16(even, odd));
      _mm512_store_si512(to + int64_t{16} * kKvBlock, _mm512_unpackhi_epi16(even, odd));
    }
  }
}

// GCC 12 does not know that loads of tiles read memory and that stores write it.
inline void tiles_see_memory() { asm volatile("" : : : "memory"); }

// Tiles 0 to 3 are sums, 4 is the factor that all of them share.
void score_keys(const TileAttend& b, const uint32_t* q, float* scores) {
  const int64_t width = padded_dim(b.dim);
  const auto stride = static_cast<size_t>(width) * 2;
  constexpr size_t kRow = kSpread * sizeof(float);
  const uint16_t* second = b.keys_at + kTile * width;
  const uint16_t *third = second + kTile * width, *last = third + kTile * width;
  tiles_see_memory();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t d = 0; d < width; d += 32) {
    _tile_loadd(4, q + d / 2 * kLanes, kTileBytes);
    _tile_loadd(5, b.keys_at + d, stride);
    _tile_dpbf16ps(0, 5, 4);
    _tile_loadd(6, second + d, stride);
    _tile_dpbf16ps(1, 6, 4);
    _tile_loadd(7, third + d, stride);
    _tile_dpbf16ps(2, 7, 4);
    _tile_loadd(5, last + d, stride);
    _tile_dpbf16ps(3, 5, 4);
  }
  _tile_stored(0, scores, kRow);
  _tile_stored(1, scores + int64_t{kTile} * kSpread, kRow);
  _tile_stored(2, scores + int64_t{2} * kTile * kSpread, kRow);
  _tile_stored(3, scores + int64_t{3} * kTile * kSpread, kRow);
  tiles_see_memory();
}

// Writes the sums of 64 elements of the values to `sums`.
void weigh_values(const uint16_t* weights, const uint16_t* values, float* sums, size_t stride) {
  constexpr int64_t kElements = int64_t{kTile} * kKvBlock;  // from one tile's to the next
  constexpr size_t kRow = kKvBlock * sizeof(uint16_t);
  tiles_see_memory();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t half = 0; half < 2; ++half) {
    const uint16_t* v = values + half * kTile * 32;
    _tile_loadd(4, weights + half * 32, kRow);
    _tile_loadd(5, v, kTileBytes);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, v + kElements, kTileBytes);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(7, v + 2 * kElements, kTileBytes);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, v + 3 * kElements, kTileBytes);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_stored(0, sums, stride);
  _tile_stored(1, sums + kTile, stride);
  _tile_stored(2, sums + int64_t{2} * kTile, stride);
  _tile_stored(3, sums + int64_t{3} * kTile, stride);
  tiles_see_memory();
}

// o = o * keep + sums.
[[gnu::noinline]] void add_values(float* o, const float* sums, int64_t n, float keep) {
  const __m512 factor = _mm512_set1_ps(keep);
  for (int64_t d = 0; d < n; d += kLanes)
    _mm512_storeu_ps(o + d,
                     _mm512_fmadd_ps(_mm512_loadu_ps(o + d), factor, _mm512_load_ps(sums + d)));
}

// Queries [first, first + count) of each of some heads, the lanes of a vector in this order.
struct Lanes {
  int head, heads, first, count;

  int lane(int h) const { return h * count; }
};

// Calls f(lane, query) for each lane whose query is computed, with its number among all heads'.
template <class Do>
void for_lanes(const TileAttend& b, const Lanes& l, Do f) {
  for (int h = 0; h < l.heads; ++h)
    for (int i = 0; i < l.count; ++i)
      if (l.first + i >= b.from && l.first + i < b.to)
        f(l.lane(h) + i, (l.head + h) * b.queries + l.first + i, l.first + i);
}

// The lanes of one head's queries that are computed.
__mmask16 computed(const TileAttend& b, const Lanes& l) {
  const int begin = b.from > l.first ? b.from - l.first : 0;
  const int end = b.to - l.first < l.count ? b.to - l.first : l.count;
  return static_cast<__mmask16>((1u << end) - (1u << begin));
}

void load_state(const TileAttend& b, const Lanes& l, Scratch& s) {
  const __mmask16 lanes = computed(b, l);
  const int64_t at = int64_t{l.head} * b.queries + l.first;
  const __m512 none = _mm512_set1_ps(-__builtin_inff());
  _mm512_store_ps(s.max, _mm512_mask_loadu_ps(none, lanes, b.max + at));
  _mm512_store_ps(s.sum, _mm512_maskz_loadu_ps(lanes, b.sum + at));
  _mm512_store_si512(s.begin, _mm512_maskz_loadu_epi32(lanes, b.begin + l.first));
  _mm512_store_si512(s.end, _mm512_maskz_loadu_epi32(lanes, b.end + l.first));
}

void store_state(const TileAttend& b, const Lanes& l, const Scratch& s) {
  const __mmask16 lanes = computed(b, l);
  const int64_t at = int64_t{l.head} * b.queries + l.first;
  _mm512_mask_storeu_ps(b.max + at, lanes, _mm512_load_ps(s.max));
  _mm512_mask_storeu_ps(b.sum + at, lanes, _mm512_load_ps(s.sum));
}

// Loads the states of several heads.
void load_states(const TileAttend& b, const Lanes& l, Scratch& s) {
  for (int i = 0; i < kLanes; ++i) {
    s.max[i] = -__builtin_inff();
    s.sum[i] = 0;
    s.begin[i] = s.end[i] = 0;
  }
  for_lanes(b, l, [&](int lane, int64_t query, int in_head) {
    s.max[lane] = b.max[query];
    s.sum[lane] = b.sum[query];
    s.begin[lane] = b.begin[in_head];
    s.end[lane] = b.end[in_head];
  });
}

void store_states(const TileAttend& b, const Lanes& l, const Scratch& s) {
  for_lanes(b, l, [&](int lane, int64_t query, int) {
    b.max[query] = s.max[lane];
    b.sum[query] = s.sum[lane];
  });
}

// Sums values by the weights of up to kLanes queries.
void weigh_head(const TileAttend& b, const uint16_t* weights) {
  for (int64_t d = 0; d < b.o_stride; d += int64_t{4} * kTile)
    weigh_values(weights, b.values_at + d * kKvBlock, b.sums_at + d,
                 static_cast<size_t>(b.sums_stride) * sizeof(float));
}

// Adds these sums to the results of one of the heads.
void add_head(const TileAttend& b, const Lanes& l, int h, const Scratch& s) {
  const Lanes one = {l.head + h, 1, l.first, l.count};
  for_lanes(b, one, [&](int lane, int64_t query, int) {
    add_values(b.o + query * b.o_stride, b.sums_at + lane * b.sums_stride, b.o_stride,
               s.keep[l.lane(h) + lane]);
  });
}

// Few queries of several heads, whose keys and values take turns in the cache.
void attend_together(const TileAttend& b, const Lanes& l, const uint32_t* q, Scratch& s) {
  Ahead values = values_of(b, l.head, l.heads);
  for (int h = 0; h < l.heads; ++h) {
    load_keys(b, l.head + h, values);
    score_keys(b, q + l.lane(h), s.scores[0] + l.lane(h));
  }
  load_states(b, l, s);
  softmax(s, b.scale);
  store_states(b, l, s);
  Ahead keys = next_keys_of(b, l.head, l.heads);
  for (int h = 0; h < l.heads; ++h) {
    load_values(b, l.head + h, keys);
    weigh_head(b, s.weights[l.lane(h)]);
    add_head(b, l, h, s);
  }
}

// Queries of one head, vector by vector. Tiles work on the next vector and the one before while
// this one's softmax is computed.
void attend_alone(const TileAttend& b, int head, const uint32_t* q) {
  Scratch scratch[2];
  const int64_t words = padded_dim(b.dim) / 2 * kLanes;
  const auto lanes = [&](int v) {
    const int first = v * kLanes;
    return Lanes{head, 1, first, static_cast<int>(smaller(kLanes, b.queries - first))};
  };
  const int first = b.from / kLanes, last = (b.to - 1) / kLanes;
  Ahead values = values_of(b, head, 1), keys = next_keys_of(b, head, 1);
  load_keys(b, head, values);
  load_values(b, head, keys);
  score_keys(b, q + first * words, scratch[first % 2].scores[0]);
  for (int v = first; v <= last + 1; ++v) {
    Scratch &now = scratch[v % 2], &other = scratch[(v + 1) % 2];
    if (v < last) score_keys(b, q + (v + 1) * words, other.scores[0]);
    if (v > first) weigh_head(b, other.weights[0]);
    if (v <= last) {
      load_state(b, lanes(v), now);
      softmax(now, b.scale);
      store_state(b, lanes(v), now);
    }
    if (v > first) add_head(b, lanes(v - 1), 0, other);
  }
}

}  // namespace

void attend_amx(const TileAttend& b) {
  const FlushSubnormals flush;
  configure_tiles(kTileRows);
  const int together = heads_in_lanes(b.queries);
  const int64_t words = padded_dim(b.dim) / 2 * kLanes;
  const int64_t vectors = (b.queries + kLanes - 1) / kLanes;
  Scratch s;
  for (int head = 0; head < b.heads; head += together) {
    const uint32_t* q = b.q + head / together * vectors * words;
    const int heads = static_cast<int>(smaller(together, b.heads - head));
    if (together > 1)
      attend_together(b, {head, heads, 0, b.queries}, q, s);
    else
      attend_alone(b, head, q);
  }
  _tile_release();
}

}  // namespace skiff::cpu

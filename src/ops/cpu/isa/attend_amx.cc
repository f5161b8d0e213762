// Attention to a block of positions in tiles. Keys are the rows of one factor and queries the
// columns of the other, so that keys need no transposition and a vector has one key's scores for
// sixteen queries: the softmax is computed across vectors, for queries of several kv heads at once
// where each has few. Whatever a query's company is, its sums are those of TDPBF16PS over 32
// elements of a key, or 32 keys, at a time.
#include "ops/cpu/isa/attend_rows.h"
#include "ops/cpu/isa/flush_subnormals.h"
#include "ops/cpu/isa/kernels.h"
#include "ops/cpu/isa/tile_softmax.h"
#include "ops/cpu/isa/tiles.h"

namespace skiff::cpu {
namespace {

constexpr int kSets = 4;  // vectors of several heads' queries that take a block together

// GCC 12 does not know that loads of tiles read memory and that stores write it.
inline void tiles_see_memory() { asm volatile("" : : : "memory"); }

// Tiles 0 to 3 are sums, 4 is the factor that all of them share. Asks for `lines` with each tile.
void score_keys(const TileAttend& b, const KeyTiles& keys, const uint32_t* q, float* scores,
                Ahead& ahead, int64_t lines) {
  const int64_t width = padded_dim(b.dim);
  const auto stride = static_cast<size_t>(keys.stride);
  constexpr size_t kRow = kLanes * sizeof(float);
  const uint8_t* second = keys.first + kTile * keys.stride;
  const uint8_t *third = second + kTile * keys.stride, *last = third + kTile * keys.stride;
  tiles_see_memory();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t d = 0; d < width * 2; d += kTileBytes) {
    _tile_loadd(4, q + d / 4 * kLanes, kTileBytes);
    _tile_loadd(5, keys.first + d, stride);
    _tile_dpbf16ps(0, 5, 4);
    ahead.ask(lines);
    _tile_loadd(6, second + d, stride);
    _tile_dpbf16ps(1, 6, 4);
    ahead.ask(lines);
    _tile_loadd(7, third + d, stride);
    _tile_dpbf16ps(2, 7, 4);
    ahead.ask(lines);
    _tile_loadd(5, last + d, stride);
    _tile_dpbf16ps(3, 5, 4);
    ahead.ask(lines);
  }
  _tile_stored(0, scores, kRow);
  _tile_stored(1, scores + int64_t{kTile} * kLanes, kRow);
  _tile_stored(2, scores + int64_t{2} * kTile * kLanes, kRow);
  _tile_stored(3, scores + int64_t{3} * kTile * kLanes, kRow);
  tiles_see_memory();
}

// Writes the sums of 64 elements of the values to `sums`, and asks for `lines` with each tile.
void weigh_values(const uint16_t* weights, const uint16_t* values, int64_t keys, float* sums,
                  size_t stride, Ahead& ahead, int64_t lines) {
  constexpr int64_t kElements = int64_t{kTile} * kKvBlock;  // from one tile's to the next
  constexpr size_t kRow = kKvBlock * sizeof(uint16_t);
  tiles_see_memory();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t half = 0; half < keys / 32; ++half) {
    const uint16_t* v = values + half * kTile * 32;
    _tile_loadd(4, weights + half * 32, kRow);
    _tile_loadd(5, v, kTileBytes);
    ahead.ask(lines);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, v + kElements, kTileBytes);
    ahead.ask(lines);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(7, v + 2 * kElements, kTileBytes);
    ahead.ask(lines);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, v + 3 * kElements, kTileBytes);
    ahead.ask(lines);
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
void weigh_head(const TileAttend& b, const uint16_t* weights, Ahead& ahead, int64_t lines) {
  for (int64_t d = 0; d < b.o_stride; d += int64_t{4} * kTile)
    weigh_values(weights, b.values_at + d * kKvBlock, weighed(b), b.sums_at + d,
                 static_cast<size_t>(b.sums_stride) * sizeof(float), ahead, lines);
}

// Adds these sums to the results of one of the heads.
void add_head(const TileAttend& b, const Lanes& l, int h, const Scratch& s) {
  const Lanes one = {l.head + h, 1, l.first, l.count};
  for_lanes(b, one, [&](int lane, int64_t query, int) {
    add_values(b.o + query * b.o_stride, b.sums_at + lane * b.sums_stride, b.o_stride,
               s.keep[l.lane(h) + lane]);
  });
}

// Tiles 0 to 4, sums and queries or weights, have so many rows and columns of 32 bits, 5 to 7 all.
void configure(int64_t rows, int64_t columns) {
  TileConfig c;
  for (int i = 0; i < 8; ++i) {
    c.rows[i] = static_cast<uint8_t>(i < 5 ? rows : kTile);
    c.row_bytes[i] = static_cast<uint16_t>((i < 5 ? columns : kTile) * 4);
  }
  // The intrinsic of GCC 12 claims to read eight bytes of the 64.
  asm volatile("" : : "r"(&c) : "memory");
  _tile_loadconfig(&c);
}

// Heads [head, head + heads) of few queries each, `together` of them in a vector. The values of all
// are asked for in the order of memory while keys are multiplied, and the next keys while values
// are.
void attend_together(const TileAttend& b, int head, int heads, int together, const uint32_t* q) {
  const int64_t words = padded_dim(b.dim) / 2 * kLanes;
  const int64_t spaced = spacing(b);
  Scratch scratch[kSets];
  const auto lanes = [&](int first) {
    return Lanes{head + first, static_cast<int>(smaller(together, heads - first)), 0, b.queries};
  };
  configure(kTile, b.queries);
  Ahead values = values_of(b, head, heads);
  const int64_t value_lines = lines_of(b.v_step) * kKvBlock / (padded_dim(b.dim) / 32 * 4) + 1;
  for (int first = 0; first < heads; first += together) {
    const Lanes l = lanes(first);
    float* scores = scratch[first / together].scores[0];
    for (int h = 0; h < l.heads; ++h)
      score_keys(b, keys_of(b, l.head + h, spaced), q + first / together * words + l.lane(h),
                 scores + l.lane(h), values, value_lines);
  }
  for (int first = 0; first < heads; first += together) {
    Scratch& s = scratch[first / together];
    load_states(b, lanes(first), s);
    softmax(s, b.scale);
    store_states(b, lanes(first), s);
  }
  configure(b.queries, kTile);
  Ahead keys = next_keys_of(b, head, heads);
  const int64_t key_lines = lines_of(b.k_step);  // a row's; half of them while values are written
  const int64_t passes = (b.o_stride + int64_t{4} * kTile - 1) / (int64_t{4} * kTile);
  for (int first = 0; first < heads; first += together) {
    const Scratch& s = scratch[first / together];
    const Lanes l = lanes(first);
    for (int h = 0; h < l.heads; ++h) {
      load_values(b, l.head + h, keys, key_lines);
      weigh_head(b, s.weights[l.lane(h)], keys, 4 * key_lines / passes);
      add_head(b, l, h, s);
    }
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
  const KeyTiles tiles = copy_keys(b, head);  // all vectors read them, best side by side
  values.ask(lines_of(b.v_dim * int64_t{2}) * b.keys);
  load_values(b, head, keys, 2 * lines_of(b.dim * int64_t{2}));
  score_keys(b, tiles, q + first * words, scratch[first % 2].scores[0], values, 0);
  for (int v = first; v <= last + 1; ++v) {
    Scratch &now = scratch[v % 2], &other = scratch[(v + 1) % 2];
    if (v < last) score_keys(b, tiles, q + (v + 1) * words, other.scores[0], values, 0);
    if (v > first) weigh_head(b, other.weights[0], keys, 0);
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
  if (together == 1) {
    for (int head = 0; head < b.heads; ++head) attend_alone(b, head, b.q + head * vectors * words);
  } else {
    const int most = kSets * together;
    for (int head = 0; head < b.heads; head += most)
      attend_together(b, head, static_cast<int>(smaller(most, b.heads - head)), together,
                      b.q + head / together * words);
  }
  _tile_release();
}

}  // namespace skiff::cpu

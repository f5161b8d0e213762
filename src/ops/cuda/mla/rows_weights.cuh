// ops/cuda/mla/rows_weights.cuh -- from scores to weights, over 8-bit rows, and the tiles of the
// warpgroups that compute both.
#pragma once
#include <cmath>

#include "ops/cuda/mla/rows_known.cuh"
#include "ops/cuda/mla/rows_queries.cuh"
#include "ops/cuda/mla/rows_scores.cuh"

namespace skiff::cuda::latent {

// Scores that a vector's row does not see become -infinity. t0: the tile's first position.
template <class Tiles>
__device__ __forceinline__ void hide(const LatentPlanArgs& p, const LatentItem& item, int t0,
                                     float (&s)[Tiles::kVectors / 2]) {
  const int thread = thread_of<Tiles>(), lane = thread % 32, warp = thread / 32;
  const int last = item.first + item.count - 1, heads = p.args.heads, last_row = last / heads;
  const int position = t0 + warp * 16 + lane / 4;
  const int first = item.first + part_of_item(p) * kLatentRows;
#pragma unroll
  for (int e = 0; e < Tiles::kVectors / 8; ++e) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int vector = min(first + Known<Tiles>::vector(e, i), last);
      const int limit = item.kv_len - 1 - (last_row - vector / heads);
      if (position > limit) s[4 * e + i] = -INFINITY;
      if (position + 8 > limit) s[4 * e + 2 + i] = -INFINITY;
    }
  }
}

// Hands the scales of a tile's positions to the warpgroups of values: each lane those of one group.
template <class Tiles>
__device__ __forceinline__ void hand_over_scales(const Known<Tiles>& known, const float (&scale)[2],
                                                 RowsShared<Tiles>& shared, int place) {
  const int thread = thread_of<Tiles>(), lane = thread % 32, warp = thread / 32;
#pragma unroll
  for (int half = 0; half < 2; ++half)
    *scale_of(shared, place, lane % 4, warp * 16 + half * 8 + lane / 4) =
        static_cast<uint16_t>(pack_half(scale[half] * inverse_power(known.largest), 0));
}

// Four matrices of 8 x 8 elements become rows of their columns.
__device__ __forceinline__ void store_transposed(uint32_t to, const uint32_t (&x)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}

// Writes the weights of a tile as wgmma takes them.
template <class Tiles>
__device__ __forceinline__ void store_weights(const Known<Tiles>& known,
                                              const float (&s)[Tiles::kVectors / 2],
                                              const RowsShared<Tiles>& shared, uint8_t* to) {
  const int thread = thread_of<Tiles>(), lane = thread % 32, warp = thread / 32;
#pragma unroll
  for (int e = 0; e < Tiles::kVectors / 8; e += 2) {
    uint32_t pair[4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float2 unit = units(shared, e + i);
      const float first = kLift - known.top[e + i][0], second = kLift - known.top[e + i][1];
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const float* x = &s[4 * (e + i) + row * 2];
        pair[2 * i + row] =
            pack_half(exp2_fast(fmaf(x[0], unit.x, first)), exp2_fast(fmaf(x[1], unit.y, second)));
      }
    }
    const int vector = (e + lane / 16) * 8 + lane % 8;
    store_transposed(shared_address(to + swizzled(vector, 2 * warp + lane / 8 % 2)), pair);
  }
}

// One tile of a run, from rows to weights.
struct ScoredTile {
  int n;     // the number of the tile among the block's
  int turn;  // the run's
  int t0;    // its first position
};

// What is known of the run lies in shared memory, for want of registers.
template <class Tiles>
__device__ __forceinline__ void score_tile(const LatentPlanArgs& p, const ScoredTile& tile,
                                           int which, RowsShared<Tiles>& shared) {
  const int stage = tile.n % Tiles::kStages, place = tile.n % Tiles::kPlaces;
  const LatentItem& item = shared.runs[tile.turn].item;
  barrier_wait(shared_address(&shared.full[stage]), tile.n / Tiles::kStages % 2);
  const int positions = item.kv_len - tile.t0;
  if (positions < kLatentTile) [[unlikely]]
    clear_rows<Tiles>(shared.rows[stage], positions);
  float s[Tiles::kVectors / 2];
  multiply_rows(s, shared, stage);
  if (tile.t0 + kLatentTile - 1 > shared.all_see[tile.turn]) [[unlikely]]
    hide<Tiles>(p, item, tile.t0, s);
  const int group = thread_of<Tiles>() % 4;
  const float scale[2] = {*scale_at<Tiles>(shared.rows[stage], group, 0),
                          *scale_at<Tiles>(shared.rows[stage], group, 1)};
  // A warp has read its keys and scales, which lie in one half of the tile.
  warp_arrives<Tiles>(shared.done[stage][thread_of<Tiles>() / 64]);
  if (tile.n >= Tiles::kPlaces)
    barrier_wait(shared_address(&shared.p_done[place]), tile.n / Tiles::kPlaces % 2 ^ 1);
  // What the tile before raised is known.
  if (tile.n > 0) barrier_wait(shared_address(&shared.known[1 - which]), (tile.n - 1) / 2 % 2);
  Known<Tiles> known;
  known.load(shared, tile.turn);
  const bool grown =
      sync_any(kGroupBarrier + which, kGroupThreads, exceeds(known, s, scale, shared));
  if (grown) [[unlikely]]
    raise(known, s, scale, which, shared, place, tile.turn);
  warp_arrives<Tiles>(shared.known[which]);
  if (thread_of<Tiles>() == 0) shared.grown[place] = grown;
  store_weights(known, s, shared, shared.p[place]);
  hand_over_scales(known, scale, shared, place);
  fence_async();
  warp_arrives<Tiles>(shared.p_full[place]);
}

// The last position that all vectors of a run see.
__device__ inline int all_see(const LatentPlanArgs& p, const LatentItem& item) {
  const int last = item.first + item.count - 1;
  return item.kv_len - 1 - (last / p.args.heads - item.first / p.args.heads);
}

// The tiles of a block that this warpgroup has: every other one.
template <class Tiles>
__device__ __forceinline__ void rows_scores(const LatentPlanArgs& p, int which,
                                            RowsShared<Tiles>& shared) {
  Walk walk(p);
  Run run;
  int n = 0;  // tiles of earlier runs
  for (int turn = 0; walk.next(run); turn = turn + 1 == Tiles::kTurns ? 0 : turn + 1) {
    // Then nobody reads what earlier runs left in this turn's place.
    if (n >= Tiles::kPlaces)
      barrier_wait(shared_address(&shared.p_done[n % Tiles::kPlaces]), n / Tiles::kPlaces % 2 ^ 1);
    if (which == 0 && thread_of<Tiles>() == 0) {
      shared.runs[turn] = run;
      shared.all_see[turn] = all_see(p, run.item);
    }
    load_queries(p, run, which, turn, shared);  // after which both warpgroups have seen that
    const int end = n + run.tiles, before = run.tile - n;
    for (n += (n + which) % 2; n < end; n += 2)
      score_tile(p, {.n = n, .turn = turn, .t0 = (before + n) * kLatentTile}, which, shared);
    n = end;
  }
}

}  // namespace skiff::cuda::latent

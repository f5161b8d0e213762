// ops/cuda/mla/rows_weights.cuh -- from scores to weights, over 8-bit rows, and the tiles of the
// warpgroups that compute both.
#pragma once
#include <cmath>

#include "ops/cuda/mla/rows_known.cuh"
#include "ops/cuda/mla/rows_queries.cuh"
#include "ops/cuda/mla/rows_scores.cuh"

namespace skiff::cuda::latent {

// Scores become those in base 2. A thread has two rows, lane / 4 and lane / 4 + 8, of its vectors:
// s[4 * e + 2 * row + i].
template <class Tiles>
__device__ __forceinline__ void scale_scores(float (&s)[Tiles::kVectors / 2],
                                             const RowsShared<Tiles>& shared) {
#pragma unroll
  for (int e = 0; e < Tiles::kVectors / 8; ++e) {
    const auto unit = *reinterpret_cast<const float2*>(&shared.unit[Known<Tiles>::vector(e, 0)]);
    s[4 * e] *= unit.x, s[4 * e + 1] *= unit.y;
    s[4 * e + 2] *= unit.x, s[4 * e + 3] *= unit.y;
  }
}

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
__device__ __forceinline__ void hand_over_scales(const Known<Tiles>& known,
                                                 const float (&scale)[2][kScaleGroups],
                                                 RowsShared<Tiles>& shared, int place) {
  const int thread = thread_of<Tiles>(), lane = thread % 32, warp = thread / 32;
  const int group = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float mine = scale[half][0] * inverse(known.largest[0]);
#pragma unroll
    for (int g = 1; g < kScaleGroups; ++g)
      if (group == g) mine = scale[half][g] * inverse(known.largest[g]);
    *scale_of(shared, place, group, warp * 16 + half * 8 + lane / 4) =
        static_cast<uint16_t>(pack_half(mine, 0));
  }
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
                                              const float (&s)[Tiles::kVectors / 2], uint8_t* to) {
  const int thread = thread_of<Tiles>(), lane = thread % 32, warp = thread / 32;
#pragma unroll
  for (int e = 0; e < Tiles::kVectors / 8; e += 2) {
    uint32_t pair[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&top)[2] = known.top[e + i / 2];
      const float* x = &s[4 * (e + i / 2) + i % 2 * 2];
      const float first = top[0] == -INFINITY ? 0.0f : top[0] - kLift;
      const float second = top[1] == -INFINITY ? 0.0f : top[1] - kLift;
      pair[i] = pack_half(exp2_fast(x[0] - first), exp2_fast(x[1] - second));
    }
    const int vector = (e + lane / 16) * 8 + lane % 8;
    store_transposed(shared_address(to + swizzled(vector, 2 * warp + lane / 8 % 2)), pair);
  }
}

// One tile of a run, from rows to weights.
struct ScoredTile {
  int n;       // the number of the tile among the block's
  int turn;    // the run's
  int t0;      // its first position
  bool first;  // the run begins with it
};

template <class Tiles>
__device__ __forceinline__ void score_tile(const LatentPlanArgs& p, const LatentItem& item,
                                           const ScoredTile& tile, int all_see, int which,
                                           RowsShared<Tiles>& shared) {
  const int stage = tile.n % Tiles::kStages, place = tile.n % Tiles::kPlaces;
  const int positions = item.kv_len - tile.t0;
  barrier_wait(shared_address(&shared.full[stage]), tile.n / Tiles::kStages % 2);
  if (positions < kLatentTile) clear_rows<Tiles>(shared.rows[stage], positions);
  const float4 upper = load_scales<Tiles>(shared.rows[stage], 0);
  const float4 lower = load_scales<Tiles>(shared.rows[stage], 1);
  const float scale[2][kScaleGroups] = {{upper.x, upper.y, upper.z, upper.w},
                                        {lower.x, lower.y, lower.z, lower.w}};
  float s[Tiles::kVectors / 2];
  multiply_rows(s, scale, shared, stage);
  scale_scores(s, shared);
  if (tile.t0 + kLatentTile - 1 > all_see) hide<Tiles>(p, item, tile.t0, s);
  if (tile.n >= Tiles::kPlaces)
    barrier_wait(shared_address(&shared.p_done[place]), tile.n / Tiles::kPlaces % 2 ^ 1);
  // What the tile before raised is known.
  if (tile.n > 0) barrier_wait(shared_address(&shared.known[1 - which]), (tile.n - 1) / 2 % 2);
  Known<Tiles> known;
  known.load(shared, tile.turn, tile.first);
  const bool grown = sync_any(kGroupBarrier + which, kGroupThreads, exceeds(known, s, scale));
  if (grown) raise(known, s, scale, which, shared, place, tile.turn);
  warp_arrives<Tiles>(shared.known[which]);
  if (thread_of<Tiles>() == 0) shared.grown[place] = grown;
  store_weights(known, s, shared.p[place]);
  hand_over_scales(known, scale, shared, place);
  fence_async();
  warp_arrives<Tiles>(shared.p_full[place]);
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
    if (which == 0 && thread_of<Tiles>() == 0) shared.runs[turn] = run;
    load_queries(p, run, which, shared);  // after which both warpgroups have seen that
    const int last = run.item.first + run.item.count - 1;
    const int all_see = run.item.kv_len - 1 - (last / p.args.heads - run.item.first / p.args.heads);
    for (int i = (n + which) % 2; i < run.tiles; i += 2) {
      const ScoredTile tile = {
          .n = n + i, .turn = turn, .t0 = (run.tile + i) * kLatentTile, .first = i == 0};
      score_tile(p, run.item, tile, all_see, which, shared);
    }
    n += run.tiles;
  }
}

}  // namespace skiff::cuda::latent

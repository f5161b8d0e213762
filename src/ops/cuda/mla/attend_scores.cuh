// ops/cuda/mla/attend_scores.cuh -- the warpgroup of the latent attention kernel that multiplies
// queries by keys. Its queries stay in registers for a whole run, but for their rotated part, which
// stays in shared memory; it turns scores into weights by an online softmax and hands them to the
// values warpgroups through shared memory.
#pragma once
#include <cuda_bf16.h>

#include <cmath>

#include "ops/cuda/hopper/wgmma.cuh"
#include "ops/cuda/hopper/wgmma_registers.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/mla/attend_shape.cuh"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda::latent {

constexpr int kSteps = kHeldPanels * 4;  // wgmmas with queries in registers
// Earlier sums are rescaled only where the maximum has grown by more than this power of two:
// weights relative to an older maximum are as exact, since they are floats.
constexpr float kMaxGrowth = 8;

// The offset of 16-byte chunk `chunk` of a row of 128 bytes, in the 128-byte swizzle.
__device__ __forceinline__ int swizzled(int row, int chunk) {
  return row * 128 + ((chunk ^ (row % 8)) * 16);
}

// The vector of queries that is row `row` of this block; negative where there is none.
__device__ __forceinline__ int vector_of(const Run& run, int part, int row) {
  const int i = part * kLatentRows + row;
  return i < run.item.count ? run.item.first + i : -1;
}

// Returns where 16 bytes of a query vector lie. A panel is 64 columns; the last one is the rotated
// part.
__device__ __forceinline__ const uint4* query_at(const LatentPlanArgs& p, int vector, int panel,
                                                 int chunk) {
  const auto* latent = static_cast<const __nv_bfloat16*>(p.args.q_latent);
  const auto* rope = static_cast<const __nv_bfloat16*>(p.args.q_rope);
  const auto* at = panel * 64 < kRank ? latent + vector * p.args.latent_stride + panel * 64
                                      : rope + vector * p.args.rope_stride;
  return reinterpret_cast<const uint4*>(at) + chunk;
}

// Starts to copy the rows of a warp of a panel to `to`; zeros where there is no vector.
__device__ __forceinline__ void copy_queries(const LatentPlanArgs& p, const int (&vector)[4],
                                             int panel, uint8_t* to) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int row = warp * 16 + j * 4 + lane / 8;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     shared_address(to + swizzled(row, lane % 8))),
                 "l"(__cvta_generic_to_global(query_at(p, max(vector[j], 0), panel, lane % 8))),
                 "r"(vector[j] >= 0 ? 16 : 0)
                 : "memory");
  }
}

// Loads the queries of a run: the first panels as wgmma takes them from registers, the others as it
// takes them from `shared_q`. A warp loads its own 16 rows, and passes the first panels through
// `shared_q`, too.
__device__ __forceinline__ void load_queries(const LatentPlanArgs& p, const Run& run, int part,
                                             uint32_t (&q)[kSteps][4],
                                             uint8_t (&shared_q)[kSharedPanels][kPanelBytes]) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  named_sync(kScoresBarrier, kGroupThreads);  // no warp's wgmma reads shared_q any more
  int vector[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) vector[j] = vector_of(run, part, warp * 16 + j * 4 + lane / 8);
#pragma unroll 1
  for (int i = 1; i < kSharedPanels; ++i) copy_queries(p, vector, kHeldPanels + i, shared_q[i]);
#pragma unroll
  for (int panel = 0; panel < kHeldPanels; ++panel) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint4 x = vector[j] >= 0 ? __ldcg(query_at(p, vector[j], panel, lane % 8)) : uint4{};
      q[panel * 4 + j][0] = x.x, q[panel * 4 + j][1] = x.y;
      q[panel * 4 + j][2] = x.z, q[panel * 4 + j][3] = x.w;
    }
  }
  uint8_t* mine = shared_q[0] + warp * 16 * 128;
#pragma unroll
  for (int panel = 0; panel < kHeldPanels; ++panel) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t(&x)[4] = q[panel * 4 + j];
      *reinterpret_cast<uint4*>(mine + swizzled(j * 4 + lane / 8, lane % 8)) = {x[0], x[1], x[2],
                                                                                x[3]};
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 4; ++j)
      load_matrices(q[panel * 4 + j],
                    shared_address(mine + swizzled(lane % 16, 2 * j + lane / 16)));
    __syncwarp();
  }
  copy_queries(p, vector, kHeldPanels, shared_q[0]);
  asm volatile("cp.async.wait_all;" ::: "memory");
  fence_async();
  named_sync(kScoresBarrier, kGroupThreads);
}

// The online softmax of a thread's two rows: lane / 4 and lane / 4 + 8 of its warp's 16. Maxima are
// in base 2.
struct Softmax {
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, keep[2];
  int limit[2];  // the last position that the row sees

  __device__ __forceinline__ void step(float (&s)[kLatentTile / 2], float scale_log2, int t0,
                                       bool edge) {
    if (edge) {
      const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
      for (int i = 0; i < kLatentTile / 2; ++i) {
        if (t0 + i / 4 * 8 + column + i % 2 > limit[i / 2 % 2]) s[i] = -INFINITY;
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float x = s[2 * half];
#pragma unroll
      for (int i = 0; i < kLatentTile / 2; i += 4)
        x = fmaxf(x, fmaxf(s[i + 2 * half], s[i + 2 * half + 1]));
      x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
      x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
      x *= scale_log2;
      const float before = top[half];
      if (x > before + kMaxGrowth) top[half] = x;
      keep[half] = top[half] == before ? 1.0f : exp2_fast(before - top[half]);
      const float base = top[half] == -INFINITY ? 0.0f : top[half];
      float total = 0;
#pragma unroll
      for (int i = 0; i < kLatentTile / 2; i += 4) {
        s[i + 2 * half] = exp2_fast(s[i + 2 * half] * scale_log2 - base);
        s[i + 2 * half + 1] = exp2_fast(s[i + 2 * half + 1] * scale_log2 - base);
        total += s[i + 2 * half] + s[i + 2 * half + 1];
      }
      sum[half] = sum[half] * keep[half] + total;
    }
  }
};

// Writes a tile's weights for wgmma, and its factors; with the last tile of a run also its result.
template <class Tiles>
__device__ __forceinline__ void hand_over(const float (&s)[kLatentTile / 2], const Softmax& softmax,
                                          Shared<Tiles>& shared, int stage, bool ends, int turn) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp * 16 + lane / 4 + 8 * half;
#pragma unroll
    for (int n = 0; n < kLatentTile / 8; ++n) {
      *reinterpret_cast<uint32_t*>(shared.right[stage].rope + swizzled(row, n) + lane % 4 * 4) =
          pack_bf16(s[n * 4 + 2 * half], s[n * 4 + 2 * half + 1]);
    }
    if (lane % 4 == 0) shared.keep[stage][row] = softmax.keep[half];
    if (!ends) continue;
    float sum = softmax.sum[half];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    if (lane % 4 == 0) {
      shared.top[turn][row] = softmax.top[half];
      shared.sum[turn][row] = sum;
    }
  }
  fence_async();
  __syncwarp();
  if (arrives<Tiles>()) barrier_arrive(shared_address(&shared.p_full[stage]));
}

// Adds queries * keys of some panels, from `panel` on; `keys` is the first of them.
template <int kFirst, int kCount>
__device__ __forceinline__ void multiply_panels(float (&s)[kLatentTile / 2],
                                                const uint32_t (&q)[kSteps][4], uint64_t shared_q,
                                                uint64_t keys, bool add) {
#pragma unroll
  for (int i = 0; i < kCount * 4; ++i) {
    constexpr int kPanel = kPanelBytes / 16;
    const uint64_t k = keys + i / 4 * kPanel + i % 4 * kWgmmaStep;
    const int step = kFirst * 4 + i;
    if (step < kSteps)
      wgmma_held<kLatentTile>(s, q[step < kSteps ? step : 0], k, i > 0 || add);
    else
      wgmma<kLatentTile>(s, shared_q + (step - kSteps) / 4 * kPanel + i % 4 * kWgmmaStep, k,
                         i > 0 || add);
  }
}

// s = queries * keys, of one tile; the right half comes first, of which more stages may be ahead.
template <class Tiles>
__device__ __forceinline__ void multiply_keys(float (&s)[kLatentTile / 2],
                                              const uint32_t (&q)[kSteps][4], Shared<Tiles>& shared,
                                              const Ring<kLeftStages>& left,
                                              const Ring<kRightStages>& right) {
  const uint64_t shared_q = wgmma_operand(shared_address(shared.q));
  barrier_wait(shared_address(&shared.right_full[right.stage]), right.phase);
  wgmma_fence();
  multiply_panels<kHalfPanels, kHalfPanels + 1>(
      s, q, shared_q, wgmma_operand(shared_address(&shared.right[right.stage])), false);
  wgmma_commit();
  barrier_wait(shared_address(&shared.left_full[left.stage]), left.phase);
  wgmma_fence();
  multiply_panels<0, kHalfPanels>(s, q, shared_q,
                                  wgmma_operand(shared_address(&shared.left[left.stage])), true);
  wgmma_commit();
  wgmma_wait<0>();
  settle(s);
}

// Sets limit[i] to the last position that the thread's row i sees, and returns the last position
// that all rows of the item see.
__device__ inline int find_limits(const LatentPlanArgs& p, const LatentItem& item, int part,
                                  int (&limit)[2]) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int last = item.first + item.count - 1, heads = p.args.heads, last_row = last / heads;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int vector = min(item.first + part * kLatentRows + warp * 16 + lane / 4 + 8 * half, last);
    limit[half] = item.kv_len - 1 - (last_row - vector / heads);
  }
  return item.kv_len - 1 - (last_row - item.first / heads);
}

template <class Tiles>
__device__ __forceinline__ void attend_scores(const LatentPlanArgs& p, Shared<Tiles>& shared) {
  const int part = part_of_item(p);
  Walk walk(p);
  Run run;
  uint32_t q[kSteps][4];
  float s[kLatentTile / 2];
  Ring<kLeftStages> left;
  Ring<kRightStages> right, added;  // `added` follows two tiles behind
  int n = 0;
  for (int turn = 0; walk.next(run); turn = turn + 1 == kTurns ? 0 : turn + 1) {
    // Then no warpgroup still reads what earlier runs left in this turn's place.
    if (n >= 2) barrier_wait(shared_address(&shared.all_done[added.stage]), added.phase);
    load_queries(p, run, part, q, shared.q);
    if (threadIdx.x == 0) shared.runs[turn] = run;
    Softmax softmax;
    const int all_see = find_limits(p, run.item, part, softmax.limit);
    int t0 = run.tile * kLatentTile;
    for (int more = run.tiles; more > 0; --more, t0 += kLatentTile) {
      multiply_keys(s, q, shared, left, right);
      softmax.step(s, p.scale_log2, t0, t0 + kLatentTile - 1 > all_see);
      // No warp's wgmma reads the rotated keys any more, whose place the weights take.
      named_sync(kScoresBarrier, kGroupThreads);
      hand_over(s, softmax, shared, right.stage, more == 1, turn);
      left.advance();
      right.advance();
      if (++n > 2) added.advance();
    }
  }
}

}  // namespace skiff::cuda::latent

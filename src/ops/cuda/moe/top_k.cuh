// ops/cuda/moe/top_k.cuh -- top-k gating: the experts of one token, chosen by one warp.
#pragma once
#include "ops/cuda/moe/route.h"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda {

struct RouteArgs {
  int32_t* expert;
  float* weight;
  const float *logits, *bias;
  int64_t logits_stride;
  int tokens, experts, top_k, always;
  bool renorm;
  const int32_t* live;
};

// An integer that orders like the score: above 0, and least for NaN.
__device__ inline unsigned rank_of(float score) {
  const unsigned b = __float_as_uint(score);
  return isnan(score) ? 1u : (b & 0x80000000u) ? ~b : b | 0x80000000u;
}

// The work of a warp for a token; lane l holds kSlots experts: l, l + 32, ...
template <int kSlots>
class TopK {
 public:
  // The bias, which no kernel writes, is loaded before wait_for_previous().
  __device__ explicit TopK(const RouteArgs& c) : c_(c), lane_(threadIdx.x % 32) {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) bias_[i] = c.bias && is(i) ? c.bias[expert_of(i)] : 0.0f;
  }

  // Writes the token's choice to expert [per token] and weight [per token].
  __device__ void choose(int token, int32_t* expert, float* weight) {
    const int all = c_.top_k + c_.always;
    if (c_.live && token >= *c_.live) {
      for (int k = lane_; k < all; k += 32) expert[k] = -1, weight[k] = 0;
      return;
    }
    find_probabilities(c_.logits + token * c_.logits_stride);
    const float sum = find_best();
    const float divisor = c_.renorm ? fmaxf(sum, 1e-12f) : 1.0f;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      if (place_[i] < 0) continue;
      expert[place_[i]] = expert_of(i);
      weight[place_[i]] = p_[i] / divisor;
    }
    for (int k = c_.top_k + lane_; k < all; k += 32) {
      expert[k] = c_.experts + k - c_.top_k;
      weight[k] = 1;
    }
  }

 private:
  __device__ int expert_of(int i) const { return lane_ + 32 * i; }
  __device__ bool is(int i) const { return expert_of(i) < c_.experts; }

  __device__ void find_probabilities(const float* logits) {
    float best = -INFINITY, total = 0;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      p_[i] = is(i) ? __ldcg(logits + expert_of(i)) : -INFINITY;
      best = fmaxf(best, p_[i]);
    }
    best = warp_max(best);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      p_[i] = is(i) ? expf(p_[i] - best) : 0.0f;
      total += p_[i];
    }
    total = warp_sum(total);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) p_[i] /= total;
  }

  // Fills place_ with the rank at which each expert is chosen, -1 where it is not. Returns the sum
  // of the chosen probabilities.
  __device__ float find_best() {
    unsigned rank[kSlots];
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      rank[i] = is(i) ? rank_of(p_[i] + bias_[i]) : 0;
      place_[i] = -1;
    }
    for (int k = 0; k < c_.top_k; ++k) {
      unsigned mine = 0;
#pragma unroll
      for (int i = 0; i < kSlots; ++i) mine = max(mine, rank[i]);
      const unsigned top = __reduce_max_sync(kAllLanes, mine);
      unsigned lowest = kAllLanes;
#pragma unroll
      for (int i = kSlots - 1; i >= 0; --i)
        if (rank[i] == top) lowest = expert_of(i);
      lowest = __reduce_min_sync(kAllLanes, lowest);
#pragma unroll
      for (int i = 0; i < kSlots; ++i) {
        if (static_cast<unsigned>(expert_of(i)) != lowest) continue;
        rank[i] = 0;
        place_[i] = k;
      }
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) sum += place_[i] >= 0 ? p_[i] : 0.0f;
    return warp_sum(sum);
  }

  const RouteArgs& c_;
  int lane_;
  float bias_[kSlots], p_[kSlots];
  int place_[kSlots];
};

}  // namespace skiff::cuda

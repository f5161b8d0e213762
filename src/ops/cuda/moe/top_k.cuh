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
  int before, here;  // weights of experts [before, before + here) are on this rank
  bool renorm;
  bool beside;  // waits for the kernels before this one at its end
  const int32_t* live;
  bool sigmoid;  // scores, instead of a softmax
  // A token uses experts of so many of the groups only.
  int groups, keep_groups, group_size;
  bool two_best;  // what a group is judged by; else its best score
  float factor;   // weights are multiplied by it
};

// An integer that orders like the score: above 0, and least for NaN.
__device__ inline unsigned rank_of(float score) {
  const unsigned b = __float_as_uint(score);
  return isnan(score) ? 1u : (b & 0x80000000u) ? ~b : b | 0x80000000u;
}

// The score of which rank_of() made the integer.
__device__ inline float score_of(unsigned rank) {
  return __uint_as_float((rank & 0x80000000u) ? rank & 0x7fffffffu : ~rank);
}

// Returns what a group is judged by, in every lane. `best` and `second` are the highest ranks that
// the lane has of the group; 0 stands for none.
__device__ inline float judge_group(const RouteArgs& c, unsigned best, unsigned second) {
  const unsigned top = __reduce_max_sync(kAllLanes, best);
  if (!c.two_best || c.groups == c.experts) return score_of(top);
  const unsigned equal = __ballot_sync(kAllLanes, best == top);
  const unsigned next = __reduce_max_sync(kAllLanes, best == top ? second : best);
  return score_of(top) + score_of((equal & (equal - 1)) != 0 ? top : next);
}

// Finds the experts of a token by one warp, whose lane l holds kSlots experts: l, l + 32, ...
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
#pragma unroll 1
      for (int k = lane_; k < all; k += 32) expert[k] = -1, weight[k] = 0;
      return;
    }
    find_probabilities(c_.logits + token * c_.logits_stride);
    const float sum = find_best();
    const float least = c_.sigmoid ? sum + 1e-20f : fmaxf(sum, 1e-12f);
    const float divisor = c_.renorm ? least : 1.0f;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      if (place_[i] < 0) continue;
      expert[place_[i]] = here(expert_of(i));
      weight[place_[i]] = p_[i] / divisor * c_.factor;
    }
#pragma unroll 1
    for (int k = c_.top_k + lane_; k < all; k += 32) {
      expert[k] = c_.here + k - c_.top_k;
      weight[k] = 1;
    }
  }

 private:
  __device__ int expert_of(int i) const { return lane_ + 32 * i; }
  // The place of an expert in the stacks of weights; -1: it is on another rank.
  __device__ int here(int expert) const {
    const int place = expert - c_.before;
    return place >= 0 && place < c_.here ? place : -1;
  }
  __device__ bool is(int i) const { return expert_of(i) < c_.experts; }

  __device__ void find_probabilities(const float* logits) {
    if (c_.sigmoid) {
#pragma unroll
      for (int i = 0; i < kSlots; ++i)
        p_[i] = is(i) ? __frcp_rn(1 + expf(-__ldcg(logits + expert_of(i)))) : 0.0f;
      return;
    }
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
    if (c_.keep_groups < c_.groups) drop_groups(rank);
#pragma unroll 1
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

  // Returns what a group of any `size` is judged by, in every lane, from the ranks of all experts
  // that the lane has.
  __device__ float judge(const unsigned (&rank)[kSlots], int group, int size) {
    unsigned best = 0, second = 0;
    const int first = group * size, end = first + size;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      if (expert_of(i) < first || expert_of(i) >= end) continue;
      second = max(second, min(best, rank[i]));
      best = max(best, rank[i]);
    }
    return judge_group(c_, best, second);
  }

  // Gives the experts of all but the best groups the rank of -inf; lane g judges group g.
  __device__ void drop_groups(unsigned (&rank)[kSlots]) {
    const int size = c_.group_size;
    unsigned worth = 0, kept = 0;
    if (size == 32) {  // Each lane has one expert of each group.
#pragma unroll
      for (int i = 0; i < kSlots; ++i) {
        const float judged = judge_group(c_, rank[i], 0);
        if (lane_ == i && i < c_.groups) worth = rank_of(judged);
      }
    } else {
#pragma unroll 1
      for (int g = 0; g < c_.groups; ++g) {
        const float judged = judge(rank, g, size);
        if (lane_ == g) worth = rank_of(judged);
      }
    }
#pragma unroll 1
    for (int k = 0; k < c_.keep_groups; ++k) {
      const unsigned top = __reduce_max_sync(kAllLanes, worth);
      const int group = __ffs(static_cast<int>(__ballot_sync(kAllLanes, worth == top))) - 1;
      kept |= 1u << group;
      if (lane_ == group) worth = 0;
    }
    // The bounds of each group are compared, because a division for each expert would take longer
    // than all else here.
#pragma unroll 1
    for (int g = 0; g < c_.groups; ++g) {
      if (kept >> g & 1) continue;
      const int first = g * size, end = first + size;
#pragma unroll
      for (int i = 0; i < kSlots; ++i)
        if (expert_of(i) >= first && expert_of(i) < end) rank[i] = rank_of(-INFINITY);
    }
  }

  const RouteArgs& c_;
  int lane_;
  float bias_[kSlots], p_[kSlots];
  int place_[kSlots];
};

}  // namespace skiff::cuda

// ops/cuda/moe/choice.cuh -- top-k gating by a block for each token, a thread for each expert: for
// so few tokens that the latency of a step counts, not the work.
//
// An expert's place is the number of experts before it, which every thread counts for itself
// without waiting for others, where a warp would look for the best again and again. The bits are
// those of TopK: sums add the same numbers in the same order.
#pragma once
#include "ops/cuda/moe/top_k.cuh"

namespace skiff::cuda {

struct ChoiceShared {
  alignas(16) unsigned rank[kMaxExperts];
  float probability[kMaxExperts], value[kMaxExperts];
  unsigned worth[kMaxGroups];   // what each group is judged by, as a rank
  int alive[kMaxExperts / 32];  // how many experts of a warp were not dropped
  int32_t chosen[kMaxExperts];  // what was written to Routing::expert
};

class Choice {
 public:
  // The bias, which no kernel writes, is loaded before wait_for_previous().
  __device__ Choice(const RouteArgs& c, ChoiceShared& shared)
      : c_(c), shared_(shared), bias_(c.bias && is() ? c.bias[expert_] : 0.0f) {}

  // Writes the token's choice. All threads of the block call it.
  __device__ void choose(int token, int32_t* expert, float* weight) {
    const int all = c_.top_k + c_.always;
    const float logit = is() ? __ldcg(c_.logits + token * c_.logits_stride + expert_) : -INFINITY;
    if (c_.live && token >= *c_.live) {
#pragma unroll 1
      for (int k = expert_; k < all; k += static_cast<int>(blockDim.x))
        write(expert, k, -1), weight[k] = 0;
      return;
    }
    const float p = c_.sigmoid ? is() ? __frcp_rn(1 + expf(-logit)) : 0.0f : softmax(logit);
    unsigned rank = is() ? rank_of(p + bias_) : 0;
    if (c_.keep_groups < c_.groups) rank = among_groups(rank);
    const int place = place_of(rank);
    const bool chosen = is() && place < c_.top_k;
    const float divisor = c_.renorm ? divisor_of(chosen ? p : 0.0f) : 1.0f;
    if (chosen) {
      const int here = expert_ - c_.before;
      write(expert, place, here >= 0 && here < c_.here ? here : -1);
      weight[place] = p / divisor * c_.factor;
    }
#pragma unroll 1
    for (int k = c_.top_k + expert_; k < all; k += static_cast<int>(blockDim.x)) {
      write(expert, k, c_.here + k - c_.top_k);
      weight[k] = 1;
    }
  }

  // Sorts the copies of the token, which is the only one, behind choose().
  __device__ void sort(int32_t* order, int32_t* start) const {
    __syncthreads();
    const int threads = static_cast<int>(blockDim.x);
#pragma unroll 1
    for (int e = expert_; e <= c_.here + c_.always; e += threads) start[e] = copies_before(e, 0);
#pragma unroll 1
    for (int k = expert_; k < c_.top_k + c_.always; k += threads)
      if (const int e = shared_.chosen[k]; e >= 0) order[copies_before(e, k)] = k;
  }

 private:
  __device__ void write(int32_t* expert, int k, int32_t e) { expert[k] = shared_.chosen[k] = e; }

  // Returns how many copies come before copy k of an expert; those with expert -1 come last.
  __device__ int copies_before(int expert, int k) const {
    const auto mine = static_cast<unsigned>(expert);
    int before = 0;
#pragma unroll 4
    for (int i = 0; i < c_.top_k + c_.always; ++i)
      before += static_cast<unsigned>(shared_.chosen[i]) < mine + (i < k);
    return before;
  }

  __device__ bool is() const { return expert_ < c_.experts; }

  // The sum of a value of each thread, as TopK adds up.
  __device__ float sum(const float* values) const {
    float sum = 0;
#pragma unroll 1
    for (int w = 0; w < warps_; ++w) sum += values[32 * w + lane_];
    return warp_sum(sum);
  }

  __device__ float softmax(float logit) {
    shared_.probability[expert_] = logit;
    __syncthreads();
    float best = -INFINITY;
#pragma unroll 1
    for (int w = 0; w < warps_; ++w) best = fmaxf(best, shared_.probability[32 * w + lane_]);
    best = warp_max(best);
    const float p = is() ? expf(logit - best) : 0.0f;
    shared_.value[expert_] = p;
    __syncthreads();
    return p / sum(shared_.value);
  }

  __device__ float divisor_of(float chosen) {
    shared_.probability[expert_] = chosen;
    __syncthreads();
    const float total = sum(shared_.probability);
    return c_.sigmoid ? total + 1e-20f : fmaxf(total, 1e-12f);
  }

  // Returns the rank, or that of -inf where the expert's group is not among the best.
  __device__ unsigned among_groups(unsigned rank) {
    const int size = c_.group_size;
    shared_.rank[expert_] = rank;
    __syncthreads();
#pragma unroll 1
    for (int g = warp_; g < c_.groups; g += warps_) {
      unsigned best = 0, second = 0;
#pragma unroll 1
      for (int i = g * size + lane_; i < (g + 1) * size; i += 32) {
        const unsigned other = shared_.rank[i];
        second = max(second, min(best, other));
        best = max(best, other);
      }
      const float judged = judge_group(c_, best, second);
      if (lane_ == 0) shared_.worth[g] = rank_of(judged);
    }
    __syncthreads();
    if (!is()) return rank;
    // Half an expert further, no rounding reaches another group.
    const int group =
        static_cast<int>(__fdividef(static_cast<float>(expert_) + 0.5f, static_cast<float>(size)));
    const unsigned worth = shared_.worth[group];
    int before = 0;
#pragma unroll 4
    for (int g = 0; g < c_.groups; ++g)
      before += shared_.worth[g] > (g < group ? worth - 1 : worth);
    return before < c_.keep_groups ? rank : rank_of(-INFINITY);
  }

  // Returns how many experts come before one of this rank, in the order of falling ranks and rising
  // numbers; or some number from top_k on.
  __device__ int place_of(unsigned rank) {
    const unsigned alive = __ballot_sync(kAllLanes, rank > rank_of(-INFINITY));
    shared_.rank[expert_] = rank;
    if (lane_ == 0) shared_.alive[warp_] = __popc(alive);
    __syncthreads();
    int left = 0;
#pragma unroll 1
    for (int w = 0; w < warps_; ++w) left += shared_.alive[w];
    const bool enough = left >= c_.top_k;  // warps without any need not be looked at
    if (enough && alive == 0) return c_.top_k;
    // Of equal ranks those of lower experts come before: in the warps before this one they need
    // only be above rank - 1. The last round counts those of this warp which are not below.
    int before = 0, higher = 0, not_lower = 0;
#pragma unroll 1
    for (int round = 0; round <= warps_; ++round) {
      const int w = round < warps_ ? round : warp_;
      if (enough && shared_.alive[w] == 0) continue;
      const int count = above(round == warps_ || w < warp_ ? rank - 1 : rank, w);
      if (round == warps_)
        not_lower = count;
      else if (w == warp_)
        higher = count;
      before += round < warps_ ? count : 0;
    }
    if (__any_sync(kAllLanes, not_lower - higher > 1)) {  // more than the expert itself
#pragma unroll 1
      for (int i = 0; i < 32; ++i) before += __shfl_sync(kAllLanes, rank, i) == rank && i < lane_;
    }
    return before;
  }

  // Returns how many ranks of a warp are above this one.
  __device__ int above(unsigned rank, int warp) const {
    const auto* ranks = reinterpret_cast<const uint4*>(shared_.rank + 32 * warp);
    int count = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint4 four = ranks[i];
      count += four.x > rank;
      count += four.y > rank;
      count += four.z > rank;
      count += four.w > rank;
    }
    return count;
  }

  const RouteArgs& c_;
  ChoiceShared& shared_;
  const int expert_ = static_cast<int>(threadIdx.x);
  const int lane_ = expert_ % 32, warp_ = expert_ / 32, warps_ = static_cast<int>(blockDim.x) / 32;
  const float bias_;
};

}  // namespace skiff::cuda

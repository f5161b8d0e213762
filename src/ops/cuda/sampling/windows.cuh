// ops/cuda/sampling/windows.cuh -- two windows, that is ranges of logits: one that contains the
// last kept token and one that contains the drawn token, both narrow enough to have few tokens.
// They are estimated from a sample of the row; the choice of the token checks exactly whether they
// were right.
//
// The total mass is exact, so a goal is sought by the mass behind it. Where many tokens share the
// mass, it is a sum of many small weights, which a sample estimates well. Where few tokens have it,
// nothing is estimated: the window reaches to the best token.
#pragma once
#include "ops/cuda/math.cuh"
#include "ops/cuda/sampling/draw.cuh"
#include "ops/cuda/sampling/weight.cuh"

namespace skiff::cuda {

constexpr int kPassThreads = 256;  // threads of a block of the pass
constexpr int kPassWarps = kPassThreads / 32;
using HeldPiece = Piece<true, kPassThreads>;

constexpr int kSampleBins =
    2 * kPassThreads;  // bins have equal width in logits; the last ends at the greatest logit
constexpr int kSampledEach = 2;   // vectors that a thread samples
constexpr float kDeviations = 5;  // standard deviations on each side of a window
constexpr float kFewAbove = 16;   // with fewer sampled tokens above it, a window has no upper end
constexpr float kLowest = -3.402823466e38f;           // the least logit of a possible token
constexpr int kNowhere = -1, kTop = kSampleBins + 1;  // edges that were not found

// The part of a draw that does not depend on logits; made by one thread.
struct Plan {
  Draw draw;
  float high, low;  // as in Power
  float powers;     // the reach of the sample's bins below the greatest logit, in powers of two
  float bins_per_logit, logits_per_bin;
  float beyond;  // a bound of the mass below the sample's bins
  double span;   // the range of logits that min_p keeps

  Plan() = default;
  __device__ Plan(const DrawArgs& args, int64_t r, int vocab) : draw(args, r) {
    const double factor = fmin(1.4426950408889634074 / static_cast<double>(draw.temperature), 1e30);
    high = __double2float_rd(factor);
    // Never zero, so that an impossible token is infinitely far.
    low = fmaxf(static_cast<float>(factor - static_cast<double>(high)), 1e-30f);
    const auto size = static_cast<float>(vocab);
    const float behind = draw.top_p < 1
                             ? 1 - draw.top_p
                             : 1 - __double2float_rd(draw.uniform);  // mass behind the goal
    powers = fminf(kReach, log2f(size / fmaxf(behind, 0x1p-20f)) + 7);
    if (draw.top_k > 0) powers = kReach;
    bins_per_logit = high * (kSampleBins / powers);
    logits_per_bin = 1 / bins_per_logit;
    beyond = size * exp2f(-powers);
    span = kept_span(draw.temperature, draw.min_p);
  }
  // Returns whether the mass that min_p leaves is needed before the windows are.
  __device__ bool needs_left() const { return draw.top_p < 1 && draw.min_p > 0 && draw.top_k <= 0; }
};

// Both ends belong to the window; the upper one may be infinite.
struct Window {
  float low, high;
};
struct Windows {
  Window cut, drawn;
  bool ends_there;  // all tokens below the cut's window are dropped or impossible
};

struct Sample {
  uint32_t bins[kSampleBins];
  // Edges: edge i lies before bin i.
  int mass_low, mass_high, count_low, count_high, drawn_low, drawn_high;
  float kept_most, kept_least;
};

__device__ inline void clear(Sample& s) {
#pragma unroll
  for (int i = 0; i < kSampleBins; i += kPassThreads) s.bins[i + threadIdx.x] = 0;
}

// The number of vectors of a thread, and the tokens that one sampled token stands for.
__device__ __forceinline__ int vectors_each(int vocab) {
  return (piece_size(vocab) / kVector + kPassThreads - 1) / kPassThreads;
}
__device__ __forceinline__ float sample_rate(int vocab) {
  const int each = vectors_each(vocab);
  return each <= kSampledEach ? 1.f : static_cast<float>(each) / static_cast<float>(kSampledEach);
}

// Samples some of this thread's tokens; which ones depends on the vocabulary alone.
__device__ inline void take_sample(Sample& s, const HeldPiece& piece, const Plan& plan, float best,
                                   int vocab) {
  const int each = vectors_each(vocab), t = static_cast<int>(threadIdx.x);
  int turn = t * 5 % each;  // spreads the samples of neighbouring threads
#pragma unroll
  for (int i = 0; i < kSampledEach; ++i) {
    const int at = t + turn * kPassThreads;
    turn += (each + 1) / kSampledEach;
    if (turn >= each) turn -= each;
    if (i >= each || at >= piece.vectors()) continue;
    const float4 four = piece.vector(at);
    const float v[] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      const float place = fmaf(v[j] - best, plan.bins_per_logit, static_cast<float>(kSampleBins));
      if (place >= 0) atomicAdd(&s.bins[min(static_cast<int>(place), kSampleBins - 1)], 1u);
    }
  }
}

// Estimates of the mass below each edge between bins, in weights of the best token. Each thread has
// two bins and the edges around them.
class Guess {
 public:
  // Called by all threads; has a barrier.
  __device__ Guess(Sample& s, const Plan& plan, int vocab) : rate_(sample_rate(vocab)) {
    const int t = static_cast<int>(threadIdx.x);
    uint2 theirs[kBlocks];
#pragma unroll
    for (int p = 0; p < kBlocks; ++p) theirs[p] = of_peer(reinterpret_cast<uint2*>(s.bins)[t], p);
    if (t == 0) {
      s.mass_low = s.count_low = s.drawn_low = kNowhere;
      s.mass_high = s.count_high = s.drawn_high = kTop;
      s.kept_most = s.kept_least = 0;
    }
    const float step = plan.powers / kSampleBins, up = exp2_fast(step);
    float weight[3];
    weight[0] = exp2_fast((static_cast<float>(2 * t - kSampleBins) + 0.5f) * step);
    weight[1] = weight[0] * up;
    weight[2] = weight[1] * up;
    uint32_t n[2] = {0, 0};
#pragma unroll
    for (int p = 0; p < kBlocks; ++p) {
      n[0] += theirs[p].x;
      n[1] += theirs[p].y;
    }
    float mine[2][3], before[3], all[3];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      mine[k][0] = static_cast<float>(n[k]);
      mine[k][1] = mine[k][0] * weight[k];
      mine[k][2] = mine[k][1] * weight[k];
    }
#pragma unroll
    for (int i = 0; i < 3; ++i) before[i] = mine[0][i] + mine[1][i];
    sums_before<kPassThreads>(before, all);
    const float spread = rate_ * (rate_ - 1), square = 4 * rate_ * rate_;
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      const float mass = rate_ * before[1];
      const float error = spread * before[2] + square * weight[k] * weight[k];
      const float margin = kDeviations * sqrt_fast(error) + 1e-5f * mass;
      least_[k] = mass - margin;
      most_[k] = mass + margin + plan.beyond;
      above_[k] = all[0] - before[0];
      if (k == 2) break;
#pragma unroll
      for (int i = 0; i < 3; ++i) before[i] += mine[k][i];
    }
  }

  // Finds the nearest edges around the place that has a mass between `least` and `most` behind it.
  __device__ void seek_mass(int& low, int& high, float least, float most) const {
    bool above[3], below[3];
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      above[k] = most_[k] <= least;
      below[k] = least_[k] >= most && above_[k] >= kFewAbove;
    }
    write_edges(low, high, above, below);
  }
  // Finds the nearest edges around the token with this rank.
  __device__ void seek_count(int& low, int& high, float rank) const {
    const float spread = rate_ * (rate_ - 1);
    bool above[3], below[3];
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      const float n = rate_ * above_[k];
      above[k] = n - kDeviations * sqrt_fast(spread * (above_[k] + 1)) >= rank;
      below[k] = n + kDeviations * sqrt_fast(spread * (above_[k] + 4)) <= rank - 1;
    }
    write_edges(low, high, above, below);
  }
  // Bounds of the mass below an edge; called by all threads, written by the thread of the edge.
  __device__ void write_least(float& to, int edge) const {
    if (edge >> 1 == static_cast<int>(threadIdx.x)) to = edge & 1 ? least_[1] : least_[0];
  }
  __device__ void write_most(float& to, int edge) const {
    if (edge >> 1 == static_cast<int>(threadIdx.x)) to = edge & 1 ? most_[1] : most_[0];
  }

 private:
  // Combines the threads' edges: the last that is certainly below a place, and the first above it.
  __device__ static void write_edges(int& low, int& high, const bool (&above)[3],
                                     const bool (&below)[3]) {
    const int edge = 2 * static_cast<int>(threadIdx.x);
    const bool last = edge + 2 == kSampleBins;
    if (above[1] && (!above[2] || last)) {
      atomicMax(&low, edge + 1);
    } else if (above[0] && !above[1]) {
      atomicMax(&low, edge);
    }
    if (!below[0] && below[1]) {
      atomicMin(&high, edge + 1);
    } else if (!below[1] && below[2]) {
      atomicMin(&high, edge + 2);
    }
    if (edge == 0 && below[0]) atomicMin(&high, 0);
  }

  float rate_;
  float least_[3], most_[3], above_[3];
};

// Called by all threads; every block finds the same windows. `total` is the mass of the row and
// `left` that of the tokens that min_p leaves (if plan.needs_left()), in weights of the best token.
//
// With top_k and top_p together the cut depends on the end of top_k: the window of the cut then
// reaches from the end of top_k's tokens to the best one.
__device__ inline Windows find_windows(Sample& s, const Plan& plan, float best, double total,
                                       double left, int vocab) {
  const Draw& draw = plan.draw;
  const Guess guess(s, plan, vocab);
  const bool by_mass = draw.top_p<1, by_count = draw.top_k> 0, by_least = draw.min_p > 0;
  const bool nested = by_mass && by_count;
  const double enough = static_cast<double>(draw.top_p) * left;
  const auto all = static_cast<float>(total);
  if (by_mass && !nested) {
    const auto behind = static_cast<float>(total - enough);
    guess.seek_mass(s.mass_low, s.mass_high, behind, behind);
  }
  if (by_count) guess.seek_count(s.count_low, s.count_high, static_cast<float>(draw.top_k));
  __syncthreads();

  const auto logit = [&](int edge) {
    if (edge < 0) return kLowest;
    if (edge >= kSampleBins) return -kNever;
    return fmaxf(best - static_cast<float>(kSampleBins - edge) * plan.logits_per_bin, kLowest);
  };
  const float least = by_least ? fmaxf(least_kept(best, plan.span), kLowest) : kLowest;
  Windows found;
  found.cut.low = fmaxf(least, logit(max(s.mass_low, s.count_low)));
  found.cut.high = nested ? -kNever
                          : fmaxf(found.cut.low, logit(max(by_mass ? s.mass_high : kNowhere,
                                                           by_count ? s.count_high : kNowhere)));
  found.ends_there = found.cut.low <= least;
  // Bounds of the kept mass without the last token.
  float kept_least = all, kept_most = all;
  if (by_count || by_least) {
    const auto edge = [&](float v) {
      return fmaf(v - best, plan.bins_per_logit, static_cast<float>(kSampleBins));
    };
    const float low = edge(found.cut.low), high = edge(found.cut.high);
    guess.write_least(s.kept_most, low > 0 ? static_cast<int>(low) : kNowhere);
    guess.write_most(s.kept_least, high < kSampleBins ? static_cast<int>(ceilf(high)) : kNowhere);
    __syncthreads();
    kept_most = all - fmaxf(s.kept_most, 0);
    kept_least = high >= kSampleBins - 1 ? 1 : fmaxf(all - s.kept_least, 1);
  }
  if (by_mass) {
    const Power power{best, plan.high, plan.low};
    const float mass = nested ? draw.top_p * kept_most : static_cast<float>(enough);
    kept_most = fminf(kept_most, mass + power.weight(fminf(found.cut.high, best)));
    if (!nested) kept_least = mass;
  }
  const auto u = static_cast<float>(draw.uniform);
  guess.seek_mass(s.drawn_low, s.drawn_high, all - u * kept_most, all - u * kept_least);
  __syncthreads();
  found.drawn.low = fmaxf(found.cut.low, logit(s.drawn_low));
  found.drawn.high = fmaxf(found.drawn.low, logit(s.drawn_high));
  return found;
}

}  // namespace skiff::cuda

// ops/cuda/sampling/choose.cuh -- chooses the token among the candidates of a row, in one block.
// Rounded sums narrow each window down to a few of its parts; exact sums then decide.
#pragma once
#include "ops/cuda/sampling/by_windows.cuh"

namespace skiff::cuda {

constexpr int kParts = kPassThreads;   // a window is cut into parts of equal width in logits
constexpr float kPartUnits = 0x1p20f;  // the weight of a window's best token
constexpr uint32_t kTokens = 8192;     // capacity of all lists together
constexpr uint32_t kFew = 512;         // tokens that are compared pairwise
constexpr int kSums = 7;

struct Parts {
  float top, per_logit, unit;  // unit: weight of the window's best token

  Parts() = default;
  __device__ Parts(const Window& w, const Power& power, float lowest) {
    top = fminf(w.high, power.best);
    per_logit = __fdividef(kParts, top - fmaxf(w.low, lowest));
    unit = power.weight(top);
  }
  __device__ __forceinline__ int part(float v) const {
    return max(min(static_cast<int>((top - v) * per_logit), kParts - 1), 0);
  }
  __device__ __forceinline__ uint32_t units(float weight) const {
    return static_cast<uint32_t>(__fdividef(weight, unit) * kPartUnits);
  }
  // The mass of one of those units.
  __device__ double unit_mass() const {
    return static_cast<double>(unit) * static_cast<double>(kUnits / kPartUnits);
  }
};

struct ChoiceMemory {
  uint64_t tokens[kTokens];
  // For each part: its weight in kPartUnits, rounded down, and its number of tokens.
  uint32_t cut_mass[kParts], drawn_mass[kParts], cut_count[kParts];
  uint64_t few[kFew], mass[kFew];
  uint32_t kind[kFew];
  uint32_t n_few;
  int limit, cut_first, cut_last, drawn_first, drawn_last;  // indices of parts
  double left_least, left_most, kept_least, kept_most;
  uint64_t sums[kSums][kPassWarps];
  // The mass that top_k leaves, the last kept token, the mass up to it and the drawn token; 0 where
  // not found.
  uint64_t left, end, kept, drawn;
};
// The roles that one of the few tokens may have.
constexpr uint32_t kNearCut = 1, kNearDrawn = 2, kNearLimit = 4;

// Run by all threads of a block.
class Chooser {
 public:
  __device__ Chooser(ChoiceMemory& choice, const PassResult& pass)
      : s_(choice),
        pass_(pass),
        windows_(pass.windows),
        power_{pass.best, pass.plan.high, pass.plan.low},
        goals_(pass.plan.draw),
        total_(pass.total),
        left_(pass.left) {
    const float lowest = pass.best - kSampleBins * pass.plan.logits_per_bin;
    cut_ = Parts(windows_.cut, power_, lowest);
    drawn_ = Parts(windows_.drawn, power_, lowest);
    limited_ = goals_.by_mass() || goals_.by_count();
  }

  // Returns false where the windows do not contain the tokens that they should.
  __device__ bool choose(int32_t* out) {
    if (threadIdx.x == 0) {
      s_.n_few = 0;
      s_.limit = s_.cut_first = s_.drawn_first = kParts;
      s_.cut_last = s_.drawn_last = kParts - 1;
      s_.left = s_.end = s_.drawn = 0;
    }
    s_.cut_mass[threadIdx.x] = s_.drawn_mass[threadIdx.x] = s_.cut_count[threadIdx.x] = 0;
    if (!fetch()) return false;
    // The window of nested goals reaches to the best token.
    if (limited_ && !goals_.nested() && goals_.cut(left_).reached(over_cut_)) return false;
    spread();
    guess();
    gather();
    return decide(out);
  }

 private:
  // Concatenates the lists. Returns false where one is incomplete.
  __device__ bool fetch() {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    over_cut_.mass = sum_of_slots(pass_.over_cut);
    over_drawn_ = sum_of_slots(pass_.over_drawn);
    over_cut_.count =
        __reduce_add_sync(kAllLanes, pass_.n_over_cut[lane] + pass_.n_over_cut[lane + 32]);
    const uint2 two = reinterpret_cast<const uint2*>(pass_.listed)[lane];  // slots 2 lane, + 1
    listed_ = __reduce_add_sync(kAllLanes, two.x + two.y);
    const uint32_t upto = warp_prefix_sum(two.x + two.y, lane);
    const uint32_t begin = upto - two.x - two.y;
    if (listed_ > kTokens || __any_sync(kAllLanes, max(two.x, two.y) > kWarpRoom)) return false;
    constexpr int kEach = kSlots / kPassWarps;
    constexpr int kAtOnce = 3;  // groups of 32 tokens of a list that are loaded together
    uint64_t token[kEach][kAtOnce];
    uint32_t from[kEach], size[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int slot = warp * kEach + i;
      const uint32_t x = __shfl_sync(kAllLanes, two.x, slot / 2),
                     y = __shfl_sync(kAllLanes, two.y, slot / 2);
      from[i] = __shfl_sync(kAllLanes, begin, slot / 2) + (slot % 2 ? x : 0);
      size[i] = slot % 2 ? y : x;
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
        token[i][j] =
            lane + 32 * j < static_cast<int>(size[i]) ? pass_.tokens[slot][lane + 32 * j] : 0;
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
        if (token[i][j] > 0) s_.tokens[from[i] + lane + 32 * j] = token[i][j];
      for (uint32_t k = lane + 32 * kAtOnce; k < size[i]; k += 32)
        s_.tokens[from[i] + k] = pass_.tokens[warp * kEach + i][k];
    }
    __syncthreads();
    return true;
  }

  __device__ bool in(const Window& w, float v) const { return v >= w.low && v <= w.high; }

  __device__ void spread() {
    for (uint32_t i = threadIdx.x; i < listed_; i += kPassThreads) {
      const float v = logit_of(s_.tokens[i]), weight = power_.weight(v);
      add_if(in(windows_.cut, v), s_.cut_mass[cut_.part(v)], cut_.units(weight));
      add_if(in(windows_.drawn, v), s_.drawn_mass[drawn_.part(v)], drawn_.units(weight));
      add_if(goals_.by_count() && in(windows_.cut, v), s_.cut_count[cut_.part(v)], 1);
    }
    __syncthreads();
  }

  // Finds the parts that can contain the cut and the drawn token.
  __device__ void guess() {
    const int t = static_cast<int>(threadIdx.x);
    const uint64_t mine[3] = {s_.cut_mass[t], s_.drawn_mass[t], s_.cut_count[t]};
    uint64_t before[3] = {mine[0], mine[1], mine[2]}, all[3];
    sums_before<kPassThreads>(before, all);

    // Each token's weight was rounded down by less than one unit, and has the error of a division.
    const uint64_t slack = listed_ + (all[0] >> 20) + 1, slack_drawn = listed_ + (all[1] >> 20) + 1;
    const double cut_unit = cut_.unit_mass(), drawn_unit = drawn_.unit_mass();
    const auto over = static_cast<double>(over_cut_.mass);
    if (goals_.nested()) {
      // top_k ends in this part, or in none.
      const uint64_t mass = before[0] + mine[0], n = before[2] + mine[2];
      const bool ends = n >= goals_.count && before[2] < goals_.count;
      if (ends || (t == kParts - 1 && n < goals_.count)) {
        if (ends) s_.limit = t;
        const auto least = static_cast<double>(ends ? before[0] : mass);
        s_.left_least = fmax(over + (least - static_cast<double>(slack)) * cut_unit, 0.0);
        s_.left_most = over + static_cast<double>(mass + slack) * cut_unit;
      }
      __syncthreads();
    }
    if (limited_) {
      const bool by_mass = goals_.by_mass();
      const auto need_of = [&](double left) {
        const auto goal = static_cast<double>(goals_.cut(static_cast<uint64_t>(left)).mass);
        return by_mass ? static_cast<uint64_t>(fmax(goal - over, 0.0) / cut_unit) : 0;
      };
      const auto left = static_cast<double>(left_);
      const uint64_t need_least = need_of(goals_.nested() ? s_.left_least : left);
      const uint64_t need_most = need_of(goals_.nested() ? s_.left_most : left);
      const uint64_t need_count = goals_.count - over_cut_.count;
      const auto may = [&](uint64_t mass, uint64_t n) {
        return by_mass ? mass + slack >= need_least : n >= need_count;
      };
      const auto must = [&](uint64_t mass, uint64_t n) {
        return by_mass ? mass > need_most + slack : n >= need_count;
      };
      const uint64_t mass = before[0] + mine[0], n = before[2] + mine[2];
      if (may(mass, n) && (t == 0 || !may(before[0], before[2]))) {
        s_.cut_first = t;
        s_.kept_least = over + static_cast<double>(before[0]) * cut_unit;
      }
      if (must(mass, n) && !must(before[0], before[2])) {
        s_.cut_last = t;
        s_.kept_most = over + static_cast<double>(mass + slack) * cut_unit;
      }
    }
    __syncthreads();
    const bool found = limited_ && s_.cut_first < kParts;
    double least = over + static_cast<double>(all[0]) * cut_unit;
    double most = least + static_cast<double>(slack) * cut_unit;
    if (found) least = s_.kept_least;
    if (found && s_.cut_last < kParts - 1) most = s_.kept_most;
    if (!found && windows_.cut.low <= kLowest) least = most = static_cast<double>(total_);

    const auto over_drawn = static_cast<double>(over_drawn_);
    const auto need = [&](double kept) {
      return static_cast<uint64_t>(fmax(goals_.uniform * kept - over_drawn, 0.0) / drawn_unit);
    };
    const uint64_t low = need(least), high = need(most) + slack_drawn;
    const uint64_t mass = before[1] + mine[1];
    if (mass + slack_drawn >= low && (t == 0 || before[1] + slack_drawn < low)) s_.drawn_first = t;
    if (mass > high && before[1] <= high) s_.drawn_last = t;
    __syncthreads();
  }

  // Lists the tokens of those parts, and sums the mass before them.
  __device__ void gather() {
    const int cut_first = s_.cut_first, cut_last = s_.cut_last, drawn_first = s_.drawn_first,
              drawn_last = s_.drawn_last, limit = s_.limit;
    const int n_sums = goals_.nested() ? kSums : kSums - 2;
    uint64_t sums[kSums] = {};
    for (uint32_t i = threadIdx.x; i < listed_; i += kPassThreads) {
      const uint64_t token = s_.tokens[i];
      const float v = logit_of(token);
      const uint64_t mass = units_of(power_.weight(v));
      const int cut = cut_.part(v), drawn = drawn_.part(v);
      const bool in_cut = in(windows_.cut, v), in_drawn = in(windows_.drawn, v);
      const bool before_cut = in_cut && cut < cut_first;
      sums[0] += in_cut ? mass : 0;
      sums[1] += in_cut;
      sums[2] += before_cut ? mass : 0;
      sums[3] += before_cut;
      sums[4] += in_drawn && drawn < drawn_first ? mass : 0;
      const bool near_cut = in_cut && cut >= cut_first && cut <= cut_last;
      const bool near_drawn = in_drawn && drawn >= drawn_first && drawn <= drawn_last;
      const bool near_limit = in_cut && cut == limit;
      sums[5] += in_cut && cut < limit ? mass : 0;
      sums[6] += in_cut && cut < limit;
      const bool near = near_cut || near_drawn || near_limit;
      const uint32_t at = add_if(near, s_.n_few, 1);
      if (near && at < kFew) {
        s_.few[at] = token;
        s_.mass[at] = mass;
        s_.kind[at] = (near_cut ? kNearCut : 0) | (near_drawn ? kNearDrawn : 0) |
                      (near_limit ? kNearLimit : 0);
      }
    }
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      if (i >= n_sums) break;
      const uint64_t sum = warp_sum_units(sums[i]);
      if (lane == 0) s_.sums[i][warp] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      if (i >= n_sums) break;
      sums_[i] = warp_sum_units(lane < kPassWarps ? s_.sums[i][lane] : 0);
    }
  }

  // The mass that top_k leaves, up to and including its last token, which is among the few; or the
  // mass of all listed tokens. 0 where it is not known.
  __device__ uint64_t mass_of_best(uint32_t n, const Ahead& listed) {
    for (uint32_t i = threadIdx.x; i < n; i += kPassThreads) {
      if (!(s_.kind[i] & kNearLimit)) continue;
      const uint64_t mine = s_.few[i];
      Ahead before{over_cut_.count + static_cast<uint32_t>(sums_[6]), over_cut_.mass + sums_[5]};
      for (uint32_t j = 0; j < n; ++j) {
        const bool ahead = s_.few[j] > mine && s_.kind[j] & kNearLimit;
        before.count += ahead;
        before.mass += ahead ? s_.mass[j] : 0;
      }
      if (before.count + 1 == goals_.count) s_.left = before.mass + s_.mass[i];
    }
    __syncthreads();
    if (s_.left > 0) return s_.left;
    return listed.count < goals_.count && windows_.ends_there ? listed.mass : 0;
  }

  __device__ bool decide(int32_t* out) {
    const uint32_t n = s_.n_few;
    if (n > kFew) return false;
    constexpr int kEach = kFew / kPassThreads;
    uint64_t ahead[kEach];
    const Ahead at{over_cut_.count + static_cast<uint32_t>(sums_[3]), over_cut_.mass + sums_[2]};
    const Ahead all{over_cut_.count + static_cast<uint32_t>(sums_[1]), over_cut_.mass + sums_[0]};
    const uint64_t left = goals_.nested() ? mass_of_best(n, all) : left_;
    if (left == 0) return false;
    const Goal cut = goals_.cut(left);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const uint32_t i = threadIdx.x + k * kPassThreads;
      if (i >= n) continue;
      const uint64_t mine = s_.few[i];
      Ahead before = at;
      ahead[k] = over_drawn_ + sums_[4];
      for (uint32_t j = 0; j < n; ++j) {
        const uint64_t mass = s_.few[j] > mine ? s_.mass[j] : 0;
        const uint32_t kind = s_.few[j] > mine ? s_.kind[j] : 0;
        before.count += kind & kNearCut ? 1 : 0;
        before.mass += kind & kNearCut ? mass : 0;
        ahead[k] += kind & kNearDrawn ? mass : 0;
      }
      const Ahead after{before.count + 1, before.mass + s_.mass[i]};
      if (limited_ && s_.kind[i] & kNearCut && cut.between(before, after)) {
        s_.end = mine;
        s_.kept = after.mass;
      }
    }
    __syncthreads();
    uint64_t kept = s_.kept;
    if (s_.end == 0) {
      if (limited_ && (cut.reached(all) || !windows_.ends_there)) return false;
      kept = windows_.cut.low <= kLowest ? total_ : all.mass;
    }
    const Goal drawn = goals_.drawn(kept);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const uint32_t i = threadIdx.x + k * kPassThreads;
      if (i < n && s_.kind[i] & kNearDrawn &&
          drawn.between({0, ahead[k]}, {0, ahead[k] + s_.mass[i]}))
        s_.drawn = s_.few[i];
    }
    __syncthreads();
    if (s_.drawn == 0) return false;
    if (threadIdx.x == 0) *out = id_of(max(s_.drawn, s_.end));
    return true;
  }

  ChoiceMemory& s_;
  const PassResult& pass_;
  Windows windows_;
  Power power_;
  Goals goals_;
  uint64_t total_, left_;
  Parts cut_, drawn_;
  bool limited_;
  Ahead over_cut_;
  uint64_t over_drawn_ = 0, sums_[kSums];
  uint32_t listed_ = 0;
};

}  // namespace skiff::cuda

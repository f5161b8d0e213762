// Drawing without a sort. Tokens fall into bins by how far below the best they are, and each bin
// counts its tokens and their weight, in whole units so that the order of additions does not show.
// Where the kept tokens end, and where the drawn one is, are places on the line of falling
// probability: prefix sums over the bins find the bin of a place, which is then split into finer
// bins until its tokens are few enough to be sorted, or are all alike.
#include "ops/cuda/launch.cuh"
#include "ops/cuda/sampling/block.cuh"
#include "ops/cuda/sampling/kernels.h"

namespace skiff::cuda {
namespace {

constexpr int kBins = kThreads;
constexpr int kListed = 2048;                         // tokens of a bin that are sorted at once
constexpr double kUnit = 17592186044416.0;            // 2^44: of a weight of 1
constexpr float kBinsPerTemperature = kBins / 20.0f;  // the last bin has all that is further away

// The finalizer of SplitMix64 and the draw of ops/uniform.cc.
__device__ uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}
__device__ double uniform_draw(uint64_t seed, uint64_t draw) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;
  return static_cast<double>(mix(mix(seed + kGolden) + kGolden * (draw + 1)) >> 11) * 0x1p-53;
}

// One row and how it is drawn from.
struct Row {
  const float* x;
  int vocab;
  float best, inverse_temperature;
  float min_weight;

  __device__ float weight(float v) const { return expf((v - best) * inverse_temperature); }
  __device__ bool kept(float w) const { return w > 0 && w >= min_weight; }
  __device__ int bin(float v) const {
    const float far = (best - v) * inverse_temperature * kBinsPerTemperature;
    return far < kBins - 1 ? static_cast<int>(far) : kBins - 1;
  }
};

// How much lies ahead of something on the line of falling probability.
struct Ahead {
  uint32_t count = 0;
  uint64_t mass = 0;
};

// The tokens of one bin whose keys lie in [low, high].
struct Range {
  int bin;
  uint32_t low, high;
  __device__ bool holds(const Row& row, float v) const {
    const uint32_t k = key(v);
    return k >= low && k <= high && row.bin(v) == bin;
  }
};

// Reached by the first token at which `count` tokens or `mass` have been passed, it included; with
// `beyond`, mass must be passed and not only be reached.
struct Goal {
  uint32_t count;
  uint64_t mass;
  bool beyond;
  __device__ bool reached(const Ahead& a) const {
    return a.count >= count || (beyond ? a.mass > mass : a.mass >= mass);
  }
};

// A token and what lies ahead of it; `weight` is its own.
struct Place {
  int id;
  Ahead ahead;
  uint64_t weight;
};

struct Shared {
  uint32_t count[kBins];
  unsigned long long mass[kBins];
  uint64_t list[kListed];
  uint32_t listed;
  int found;
  Ahead ahead;
};

__device__ uint64_t units(float weight) {
  return static_cast<uint64_t>(static_cast<double>(weight) * kUnit);
}

__device__ void clear(Shared& s) {
  __syncthreads();
  s.count[threadIdx.x] = 0;
  s.mass[threadIdx.x] = 0;
  __syncthreads();
}

__device__ void count_into(Shared& s, int bin, float weight) {
  atomicAdd(&s.count[bin], 1u);
  atomicAdd(&s.mass[bin], static_cast<unsigned long long>(units(weight)));
}

// The first bin in which the goal is reached, and what lies ahead of that bin; -1 if in none.
__device__ int find_bin(Shared& s, const Goal& goal, Ahead start, Ahead& ahead) {
  __syncthreads();
  const auto t = static_cast<int>(threadIdx.x);
  Ahead before{start.count + sum_before(s.count[t]),
               start.mass + sum_before(static_cast<uint64_t>(s.mass[t]))};
  const Ahead after{before.count + s.count[t], before.mass + s.mass[t]};
  if (t == 0) s.found = -1;
  __syncthreads();
  if (s.count[t] > 0 && goal.reached(after) && !goal.reached(before)) {
    s.found = t;
    s.ahead = before;
  }
  __syncthreads();
  ahead = s.ahead;
  return s.found;
}

// Sorts list[0, n) falling; n <= kListed. Bitonic (Batcher 1968).
__device__ void sort_list(Shared& s, int n) {
  int size = 1;
  while (size < n) size *= 2;
  for (int i = n + static_cast<int>(threadIdx.x); i < size; i += kThreads) s.list[i] = 0;
  __syncthreads();
  for (int run = 2; run <= size; run *= 2) {
    for (int step = run / 2; step > 0; step /= 2) {
      for (int i = static_cast<int>(threadIdx.x); i < size; i += kThreads) {
        const int other = i ^ step;
        if (other <= i) continue;
        const bool falling = (i & run) == 0;
        const uint64_t a = s.list[i], b = s.list[other];
        if ((a < b) == falling) {
          s.list[i] = b;
          s.list[other] = a;
        }
      }
      __syncthreads();
    }
  }
}

// The place of the goal among few tokens.
__device__ Place place_in_list(const Row& row, Shared& s, const Range& range, const Goal& goal,
                               Ahead ahead) {
  __syncthreads();
  if (threadIdx.x == 0) s.listed = 0;
  __syncthreads();
  each_logit(row.x, row.vocab, [&](int id, float v) {
    if (range.holds(row, v) && row.kept(row.weight(v)))
      s.list[atomicAdd(&s.listed, 1u)] = ranked(v, id);
  });
  __syncthreads();
  const auto n = static_cast<int>(s.listed);
  sort_list(s, n);
  // Two neighbours a thread: their weights, then prefix sums.
  const int first = 2 * static_cast<int>(threadIdx.x);
  uint64_t weight[2] = {0, 0};
  for (int i = 0; i < 2; ++i)
    if (first + i < n) weight[i] = units(row.weight(row.x[id_of(s.list[first + i])]));
  const uint64_t mass = ahead.mass + sum_before(weight[0] + weight[1]);
  if (threadIdx.x == 0) s.found = n - 1;
  __syncthreads();
  Ahead before{ahead.count + static_cast<uint32_t>(first), mass};
  for (int i = 0; i < 2 && first + i < n; ++i) {
    const Ahead after{before.count + 1, before.mass + weight[i]};
    if (goal.reached(after) && !goal.reached(before)) s.found = first + i;
    before = after;
  }
  __syncthreads();
  const int at = s.found;
  if (first == at || first + 1 == at) {
    s.ahead = {ahead.count + static_cast<uint32_t>(at), mass + (first + 1 == at ? weight[0] : 0)};
    s.mass[0] = weight[at - first];
  }
  __syncthreads();
  return {id_of(s.list[at]), s.ahead, s.mass[0]};
}

// The place of the goal among tokens of one value, which stand in the order of their ids.
__device__ Place place_in_ties(const Row& row, Shared& s, const Range& range, const Goal& goal,
                               Ahead ahead, uint32_t count) {
  const uint64_t weight = [&] {
    uint64_t w = 0;
    each_logit(row.x, row.vocab, [&](int, float v) {
      if (range.holds(row, v)) w = units(row.weight(v));
    });
    return reduce(w, [](uint64_t a, uint64_t b) { return max(a, b); });
  }();
  uint32_t low = 0, high = count - 1;  // how many ties go before
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const Ahead after{ahead.count + middle + 1, ahead.mass + (middle + 1) * weight};
    if (goal.reached(after)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  // Each thread counts a run of tokens; the one whose run holds tie number `low` finds it.
  const int run = (row.vocab + kThreads - 1) / kThreads;
  const int begin = min(row.vocab, run * static_cast<int>(threadIdx.x)),
            end = min(row.vocab, begin + run);
  uint32_t mine = 0;
  for (int i = begin; i < end; ++i) mine += range.holds(row, sane(row.x[i]));
  uint32_t seen = sum_before(mine);
  if (seen <= low && low < seen + mine) {
    for (int i = begin; i < end; ++i) {
      if (!range.holds(row, sane(row.x[i]))) continue;
      if (seen++ == low) s.found = i;
    }
  }
  __syncthreads();
  return {s.found, {ahead.count + low, ahead.mass + low * weight}, weight};
}

// The place of the goal, which is reached in this bin.
__device__ Place place(const Row& row, Shared& s, int bin, const Goal& goal, Ahead ahead) {
  Range range{bin, 0, 0xffffffffu};
  uint32_t count = s.count[bin];
  bool whole = true;
  while (count > kListed) {
    if (whole) {  // the keys that the bin really has
      uint32_t low = 0xffffffffu, high = 0;
      each_logit(row.x, row.vocab, [&](int, float v) {
        if (row.bin(v) != bin || !row.kept(row.weight(v))) return;
        low = min(low, key(v));
        high = max(high, key(v));
      });
      range.low = reduce(low, [](uint32_t a, uint32_t b) { return min(a, b); });
      range.high = reduce(high, [](uint32_t a, uint32_t b) { return max(a, b); });
      whole = false;
    }
    if (range.low == range.high) return place_in_ties(row, s, range, goal, ahead, count);
    const uint32_t step = (range.high - range.low) / kBins + 1;
    clear(s);
    each_logit(row.x, row.vocab, [&](int, float v) {
      if (range.holds(row, v))
        count_into(s, static_cast<int>((range.high - key(v)) / step), row.weight(v));
    });
    const int part = find_bin(s, goal, ahead, ahead);
    count = s.count[part];
    range.high -= static_cast<uint32_t>(part) * step;
    range.low = max(range.low, range.high - min(step - 1, range.high - range.low));
  }
  return place_in_list(row, s, range, goal, ahead);
}

__global__ void __launch_bounds__(kThreads, 1)
    sample_kernel(int32_t* out_ids, LogitArgs logits, DrawArgs draw) {
  extern __shared__ __align__(16) unsigned char memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  let_next_start();
  wait_for_previous();
  const int64_t r = blockIdx.x;
  Row row{.x = logits.data + r * logits.stride, .vocab = logits.vocab};
  const uint64_t best = best_of(row.x, row.vocab);
  row.best = sane(row.x[id_of(best)]);
  const float temperature = draw.temperature[r], top_p = draw.top_p[r];
  if (temperature <= 0 || top_p <= 0 || !isfinite(row.best)) {
    if (threadIdx.x == 0) out_ids[r] = id_of(best);
    return;
  }
  row.inverse_temperature = 1 / temperature;
  row.min_weight = draw.min_p[r];

  clear(s);
  uint64_t dropped = 0;  // the weight of tokens that min_p drops counts for top_p all the same
  each_logit(row.x, row.vocab, [&](int, float v) {
    const float w = row.weight(v);
    if (row.kept(w)) {
      count_into(s, row.bin(v), w);
    } else {
      dropped += units(w);
    }
  });
  __syncthreads();
  const uint64_t kept = sum(static_cast<uint64_t>(s.mass[threadIdx.x])), all = kept + sum(dropped);

  const int top_k = draw.top_k[r];
  const Goal cut{.count = top_k > 0 ? static_cast<uint32_t>(top_k) : ~0u,
                 .mass = top_p < 1 ? static_cast<uint64_t>(ceil(static_cast<double>(top_p) *
                                                                static_cast<double>(all)))
                                   : ~0ull,
                 .beyond = false};
  const uint32_t my_count = s.count[threadIdx.x];
  const uint64_t my_mass = s.mass[threadIdx.x];
  Ahead ahead;
  const int last_bin = find_bin(s, cut, {}, ahead);
  uint64_t mass = kept;  // of the tokens that may be drawn
  if (last_bin >= 0) {
    const Place last = place(row, s, last_bin, cut, ahead);
    mass = last.ahead.mass + last.weight;
  }
  __syncthreads();
  s.count[threadIdx.x] = my_count;
  s.mass[threadIdx.x] = my_mass;
  const double uniform =
      uniform_draw(static_cast<uint64_t>(draw.seed[r]), static_cast<uint64_t>(draw.draw[r]));
  const Goal drawn{
      .count = ~0u,
      .mass = min(static_cast<uint64_t>(uniform * static_cast<double>(mass)), mass - 1),
      .beyond = true};
  const int bin = find_bin(s, drawn, {}, ahead);
  const Place at = place(row, s, bin, drawn, ahead);
  if (threadIdx.x == 0) out_ids[r] = at.id;
}

}  // namespace

void start_sample(int32_t* out_ids, const LogitArgs& logits, const DrawArgs& draw,
                  cudaStream_t stream) {
  allow_shared(sample_kernel, sizeof(Shared));
  launch(sample_kernel,
         {.grid = dim3(static_cast<unsigned>(logits.rows)),
          .block = dim3(kThreads),
          .shared = sizeof(Shared),
          .stream = stream},
         out_ids, logits, draw);
}

}  // namespace skiff::cuda

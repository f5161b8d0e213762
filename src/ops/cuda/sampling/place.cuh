// ops/cuda/sampling/place.cuh -- finds the token that reaches a goal, once its bin is known. The
// bin's tokens are ranked if they fit into a list; otherwise the bin is split until they do, or
// until all have the same logit. Results are the same in all threads of the cluster.
#pragma once
#include "ops/cuda/sampling/line.cuh"

namespace skiff::cuda {

// The tokens of one bin whose keys lie in [low, high].
struct Range {
  int bin;
  uint32_t low, high;
  __device__ __forceinline__ bool holds(const Scale& scale, float v) const {
    return scale.reaches(v) && scale.bin(v) == bin && scale.keeps(v) && key(v) >= low &&
           key(v) <= high;
  }
};

// Lists each block's tokens for which holds(logit), up to the capacity of the list, and returns the
// number of such tokens in the row.
template <bool kHeld, class F>
__device__ uint32_t list(const Line<kHeld>& line, F holds) {
  Shared& s = line.s;
  if (threadIdx.x == 0) s.listed = 0;
  __syncthreads();
  line.piece.each([&](int id, float v) {
    if (!holds(v)) return;
    const uint32_t at = atomicAdd(&s.listed, 1u);
    if (at < kListed) s.lists.mine[at] = ranked(v, id);
  });
  cluster_sync();
  uint32_t n = 0;
#pragma unroll
  for (int p = 0; p < blocks_of<kHeld>(); ++p) n += of_peer(s.listed, p);
  return n;
}

// Copies the lists of all blocks, at most kListed tokens together, to every block.
template <bool kHeld>
__device__ void gather(Shared& s, const Scale& scale) {
  uint32_t end[kBlocks], n = 0;
#pragma unroll
  for (int p = 0; p < kBlocks; ++p) end[p] = n += p < blocks_of<kHeld>() ? of_peer(s.listed, p) : 0;
  for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
    int from = 0;
    uint32_t begin = 0;
#pragma unroll
    for (int p = 0; p + 1 < kBlocks; ++p) {
      if (i < end[p]) continue;
      from = p + 1;
      begin = end[p];
    }
    const uint64_t rank = of_peer(s.lists.mine[i - begin], from);
    s.lists.all[i] = rank;
    s.lists.weight[i] = scale.weight(logit_of(rank)).units();
  }
  __syncthreads();
}

template <bool kHeld>
__device__ void publish(Shared& s, const Place& place) {
  for (int p = 0; p < blocks_of<kHeld>(); ++p) of_peer(s.place, p) = place;
}

// Calls f(index, the tokens of the list that rank before it) for each of the n tokens of a list, in
// one lane of the cluster: the tokens are divided among blocks and warps.
template <bool kHeld, class F>
__device__ void rank_list(const Lists& lists, int n, F f) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int i = block_rank() + blocks_of<kHeld>() * warp; i < n; i += blocks_of<kHeld>() * kWarps) {
    const uint64_t mine = lists.all[i];
    Ahead before;
    for (int j = lane; j < n; j += 32) {
      const bool better = lists.all[j] > mine;
      before.count += better;
      before.mass += better ? lists.weight[j] : 0;
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      before.count += __shfl_xor_sync(kAllLanes, before.count, step);
      before.mass += __shfl_xor_sync(kAllLanes, before.mass, step);
    }
    if (lane == 0) f(i, before);
  }
}

// Finds the goal among the tokens of a list.
template <bool kHeld>
__device__ Place place_in_list(Shared& s, const Scale& scale, const Goal& goal, Ahead ahead,
                               int n) {
  gather<kHeld>(s, scale);
  rank_list<kHeld>(s.lists, n, [&](int i, Ahead before) {
    before.count += ahead.count;
    before.mass += ahead.mass;
    const uint64_t weight = s.lists.weight[i];
    if (goal.between(before, {before.count + 1, before.mass + weight}))
      publish<kHeld>(s, {id_of(s.lists.all[i]), before, weight, false});
  });
  cluster_sync();
  return s.place;
}

// Finds the goal among tokens with equal logits, which rank by their ids.
template <bool kHeld>
__device__ Place place_in_ties(const Line<kHeld>& line, const Range& range, const Goal& goal,
                               Ahead ahead, uint32_t count) {
  Shared& s = line.s;
  const float value = logit_of(uint64_t{range.low} << 32);
  const uint64_t weight = line.scale.weight(value).units();
  uint32_t low = 0, high = count - 1;  // bounds of the token's rank among the ties
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (goal.reached({ahead.count + middle + 1, ahead.mass + (middle + 1) * weight})) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  uint32_t mine = 0;
  line.piece.each_of_run([&](int, float v) { mine += v == value; });
  const uint32_t ours = sum(mine);
  broadcast(s.ties, ours);
  cluster_sync();
  uint32_t seen = sum_before(mine);
  for (int p = 0; p < block_rank(); ++p) seen += s.ties[p];
  if (seen <= low && low < seen + mine) {
    line.piece.each_of_run([&](int id, float v) {
      if (v == value && seen++ == low)
        publish<kHeld>(s, {id, {ahead.count + low, ahead.mass + low * weight}, weight, false});
    });
  }
  cluster_sync();
  return s.place;
}

// Narrows the range to the least and the greatest key in it.
template <bool kHeld>
__device__ void tighten(const Line<kHeld>& line, Range& range) {
  Shared& s = line.s;
  uint32_t low = ~0u, high = 0;
  line.piece.each([&](int, float v) {
    if (!range.holds(line.scale, v)) return;
    low = min(low, key(v));
    high = max(high, key(v));
  });
  low = reduce(low, [](uint32_t a, uint32_t b) { return min(a, b); });
  high = reduce(high, [](uint32_t a, uint32_t b) { return max(a, b); });
  broadcast(s.least, low);
  broadcast(s.greatest, high);
  cluster_sync();
  range.low = s.least[0];
  range.high = s.greatest[0];
  for (int p = 1; p < blocks_of<kHeld>(); ++p) {
    range.low = min(range.low, s.least[p]);
    range.high = max(range.high, s.greatest[p]);
  }
}

// Splits a tight range into kBins parts, and narrows it to the part in which the goal is reached.
template <bool kHeld>
__device__ void split(const Line<kHeld>& line, Range& range, const Goal& goal, Ahead& ahead) {
  Shared& s = line.s;
  const uint32_t width = (range.high - range.low) / kBins + 1;
  clear(s.counts);
  line.piece.each([&](int, float v) {
    const bool in[] = {range.holds(line.scale, v)};
    const int part[] = {static_cast<int>((range.high - key(v)) / width)};
    const uint32_t steps[] = {line.scale.weight(v).steps};
    count_into(s.counts, in, part, steps, line.counted);
  });
  merge<kHeld>(s, line.counted, [&](int) { return step_of(range.bin); });
  const Found found = find_bin(s, line.counted, goal, ahead);
  const auto part = static_cast<uint32_t>(found.bin);
  ahead = found.ahead;
  range.high -= part * width;
  range.low = max(range.low, range.high - min(width - 1, range.high - range.low));
}

// Finds the goal, which is reached in this bin. It is not inlined, and takes `line` by value, to
// save registers: so nothing else has its address taken.
template <bool kHeld>
__device__ __noinline__ Place place(Line<kHeld> line, Found in, Goal goal) {
  Range range{in.bin, 0, ~0u};
  Ahead ahead = in.ahead;
  for (bool split_up = false;; split_up = true) {
    const uint32_t n = list(line, [&](float v) { return range.holds(line.scale, v); });
    Place found;
    if (n <= kListed) {
      found = place_in_list<kHeld>(line.s, line.scale, goal, ahead, static_cast<int>(n));
    } else {
      tighten(line, range);
      if (range.low < range.high) {
        split(line, range, goal, ahead);
        continue;
      }
      found = place_in_ties(line, range, goal, ahead, n);
    }
    found.split_up = split_up;
    return found;
  }
}

}  // namespace skiff::cuda

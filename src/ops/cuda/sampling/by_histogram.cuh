// ops/cuda/sampling/by_histogram.cuh -- top-k, top-p and min-p sampling by a histogram of the whole
// row: correct for every row, whatever its distribution.
#pragma once
#include "ops/cuda/sampling/draw.cuh"
#include "ops/cuda/sampling/place.cuh"

namespace skiff::cuda {

// Adds the block's tokens to its histogram.
template <bool kDrops, bool kHeld>
__device__ void count_piece(const Line<kHeld>& line) {
  const Scale& scale = line.scale;
  line.piece.each_vector([&](int, float4 four) {
    const float v[] = {four.x, four.y, four.z, four.w};
    bool in[4];
    int bin[4];
    uint32_t steps[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Weight w = scale.weight(v[i]);  // not used where the token is out of reach
      in[i] = scale.reaches(v[i]) && (!kDrops || scale.keeps(v[i]));
      bin[i] = w.bin;
      steps[i] = w.steps;
    }
    count_into(line.s.counts, in, bin, steps, line.counted);
  });
}

// Makes the row's histogram of the tokens that min_p leaves.
template <bool kHeld>
__device__ void spread(const Line<kHeld>& line) {
  if (line.scale.drops()) {
    count_piece<true>(line);
  } else {
    count_piece<false>(line);
  }
  merge<kHeld>(line.s, line.counted, step_of);
}

// The mass up to and including the token that reaches the goal. The row's histogram is the same
// afterwards.
template <bool kHeld>
__device__ uint64_t mass_up_to(const Line<kHeld>& line, const Found& in, const Goal& goal) {
  const Place last = place(line, in, goal);
  if (last.split_up) {
    clear(line.s.counts);
    spread(line);
  }
  return last.ahead.mass + last.weight;
}

// The mass that top_k leaves.
template <bool kHeld>
__device__ __noinline__ uint64_t mass_of_best(Line<kHeld> line, Goal limit) {
  const Found in = find_bin(line.s, line.counted, limit, {});
  return in.bin < 0 ? line.s.total.mass : mass_up_to(line, in, limit);
}

// Finds the cut and the drawn token one after the other, where both do not fit into one list.
// `mass` is the mass of the kept tokens if nothing cuts them.
template <bool kHeld>
__device__ __noinline__ int drawn_in_turn(Line<kHeld> line, Goals goals, Found cut, Goal end,
                                          uint64_t mass) {
  if (cut.bin >= 0) mass = mass_up_to(line, cut, end);
  const Goal drawn = goals.drawn(mass);
  return place(line, find_bin(line.s, line.counted, drawn, {}), drawn).id;
}

// Finds the cut and the drawn token together. The mass to draw from is known up to the weight of
// the last kept token, which moves the drawn token's bin little: so the tokens of all bins in
// question are listed and ranked together.
template <bool kHeld>
__device__ void draw_by_histogram(int32_t* out, const Line<kHeld>& line, const Draw& draw) {
  Shared& s = line.s;
  const Goals goals(draw);
  spread(line);
  const uint64_t best_mass = goals.nested() ? mass_of_best(line, goals.limit()) : 0;
  Search search(s, line.counted, {});
  const uint64_t kept = search.total().mass;
  const Goal end = goals.cut(goals.nested() ? best_mass : kept);
  search.seek(0, end);
  __syncthreads();
  const Found cut = search.found(0);
  const uint64_t least = cut.bin < 0 ? kept : max(cut.ahead.mass, uint64_t{1});
  const uint64_t most = cut.bin < 0 ? kept : cut.ahead.mass + s.mass[cut.bin];
  search.seek(1, goals.drawn(least));
  search.seek(2, goals.drawn(most));
  __syncthreads();
  const Found first = search.found(1), last = search.found(2);

  const Scale& scale = line.scale;
  const Band drawn_band(scale, first.bin, last.bin);
  const Band cut_band = cut.bin < 0 ? Band() : Band(scale, cut.bin, cut.bin);
  const auto n = static_cast<int>(list(line, [&](float v) {
    if (!drawn_band.may_hold(v) && !cut_band.may_hold(v)) return false;
    if (!scale.reaches(v)) return false;
    const int bin = scale.bin(v);
    return (bin == cut.bin || (bin >= first.bin && bin <= last.bin)) && scale.keeps(v);
  }));
  if (n > kListed) {
    cluster_sync();  // all blocks have read the number of listed tokens
    const int id = drawn_in_turn(line, goals, cut, end, kept);
    if (threadIdx.x == 0 && block_rank() == 0) *out = id;
    return;
  }
  gather<kHeld>(s, scale);
  // The drawn token's bins come first; the tokens between them and the cut's bin are not listed.
  const uint64_t mass_between = cut.ahead.mass - (last.ahead.mass + s.mass[last.bin]);
  const uint32_t count_between =
      line.counted ? cut.ahead.count - (last.ahead.count + s.count[last.bin]) : 0;
  rank_list<kHeld>(s.lists, n, [&](int i, Ahead before) {
    const uint64_t token = s.lists.all[i], weight = s.lists.weight[i];
    const bool beyond = scale.bin(logit_of(token)) > last.bin;
    before.mass += first.ahead.mass + (beyond ? mass_between : 0);
    before.count += first.ahead.count + (beyond ? count_between : 0);
    s.lists.before[i] = before.mass;
    if (end.between(before, {before.count + 1, before.mass + weight}))
      publish<kHeld>(s, {id_of(token), before, weight, false});
  });
  cluster_sync();
  const Goal drawn = goals.drawn(cut.bin < 0 ? kept : s.place.ahead.mass + s.place.weight);
  for (int i = block_rank() + blocks_of<kHeld>() * static_cast<int>(threadIdx.x); i < n;
       i += blocks_of<kHeld>() * kThreads) {
    const uint64_t before = s.lists.before[i], weight = s.lists.weight[i];
    if (drawn.between({0, before}, {0, before + weight})) *out = id_of(s.lists.all[i]);
  }
}

}  // namespace skiff::cuda

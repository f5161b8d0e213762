// Drawing without a sort. A cluster of blocks holds a row. Its tokens fall into bins by how far
// below the best they are, and each bin adds up their weights, in whole units so that the order of
// additions does not show. Where the kept tokens end, and where the drawn one is, are places on the
// line of falling probability: prefix sums over the bins find the bin of a place, whose tokens are
// then ranked.
#include "ops/cuda/launch.cuh"
#include "ops/cuda/sampling/kernels.h"
#include "ops/cuda/sampling/place.cuh"

namespace skiff::cuda {
namespace {

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

// The first block that has the best finds its first token.
template <bool kHeld>
__device__ void take_first(int32_t* out, const Piece<kHeld>& piece, const Shared& s, float best) {
  for (int p = 0; p < block_rank(); ++p)
    if (s.best[p] == best) return;
  if (s.best[block_rank()] != best) return;
  uint32_t first = ~0u;
  piece.each([&](int id, float v) {
    if (v == best) first = min(first, static_cast<uint32_t>(id));
  });
  first = reduce(first, [](uint32_t a, uint32_t b) { return min(a, b); });
  if (threadIdx.x == 0) *out = best == kNever ? 0 : static_cast<int32_t>(first);
}

// Into the block's counts; returns the weight of tokens that are dropped.
template <bool kDrops, bool kHeld>
__device__ uint64_t count_piece(const Line<kHeld>& line) {
  const Scale& scale = line.scale;
  uint64_t dropped = 0;
  line.piece.each_vector([&](int, float4 four) {
    const float v[] = {four.x, four.y, four.z, four.w};
    bool in[4];
    int bin[4];
    uint32_t steps[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Weight w = scale.weight(v[i]);  // nonsense where out of reach
      in[i] = scale.reaches(v[i]);
      bin[i] = w.bin;
      steps[i] = w.steps;
      if (!kDrops || scale.keeps(v[i])) continue;
      if (in[i]) dropped += w.units();
      in[i] = false;
    }
    count_into(line.s.counts, in, bin, steps, line.counted);
  });
  return dropped;
}

// The row's histogram; returns the weight of tokens that min_p drops: it counts for top_p all the
// same.
template <bool kHeld>
__device__ uint64_t spread(const Line<kHeld>& line) {
  Shared& s = line.s;
  const bool drops = line.scale.drops();
  uint64_t dropped = drops ? count_piece<true>(line) : count_piece<false>(line);
  if (drops) tell_all(s.dropped, sum(dropped));
  merge(s, line.counted, step_of);
  if (!drops) return 0;
  dropped = 0;
  for (int p = 0; p < kBlocks; ++p) dropped += s.dropped[p];
  return dropped;
}

// Where the kept tokens end, and from what total mass which mass is drawn.
struct Goals {
  Goal cut;
  double uniform;
  __device__ Goals(float top_p, int top_k, double u, uint64_t total_mass) : uniform(u) {
    const double all = static_cast<double>(total_mass);
    cut = {
        .count = top_k > 0 ? static_cast<uint32_t>(top_k) : ~0u,
        .mass = top_p < 1 ? static_cast<uint64_t>(ceil(static_cast<double>(top_p) * all)) : ~0ull,
        .beyond = false};
  }
  __device__ Goal drawn(uint64_t mass) const {
    return {.count = ~0u,
            .mass = min(static_cast<uint64_t>(uniform * static_cast<double>(mass)), mass - 1),
            .beyond = true};
  }
};

// One place after the other: where lists are too short for both.
template <bool kHeld>
__device__ __noinline__ int drawn_in_turn(Line<kHeld> line, Goals goals, Found cut, uint64_t mass) {
  if (cut.bin >= 0) {
    const Place last = place(line, cut, goals.cut);
    mass = last.ahead.mass + last.weight;
    if (last.split_up) {
      clear(line.s.counts);
      spread(line);
    }
  }
  const Goal drawn = goals.drawn(mass);
  return place(line, find_bin(line.s, line.counted, drawn, {}), drawn).id;
}

// The bins of both places are known but for the last token's weight: what is drawn moves little
// with it. So their tokens are listed together, and each is told its place on the line.
template <bool kHeld>
__device__ void draw_token(int32_t* out, const Line<kHeld>& line, float top_p, int top_k,
                           double uniform) {
  Shared& s = line.s;
  const uint64_t dropped = spread(line);
  Search search(s, line.counted, {});
  const uint64_t kept = search.total().mass;
  const Goals goals(top_p, top_k, uniform, kept + dropped);
  search.seek(0, goals.cut);
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
    cluster_sync();  // all have read how many there are
    const int id = drawn_in_turn(line, goals, cut, kept);
    if (threadIdx.x == 0 && block_rank() == 0) *out = id;
    return;
  }
  gather(s, scale);
  // The bins of what is drawn come first. Between them and the cut's lies what is not listed.
  const uint64_t mass_between = cut.ahead.mass - (last.ahead.mass + s.mass[last.bin]);
  const uint32_t count_between =
      line.counted ? cut.ahead.count - (last.ahead.count + s.count[last.bin]) : 0;
  rank_list(s.lists, n, [&](int i, Ahead before) {
    const uint64_t token = s.lists.all[i], weight = s.lists.weight[i];
    const bool beyond = scale.bin(logit_of(token)) > last.bin;
    before.mass += first.ahead.mass + (beyond ? mass_between : 0);
    before.count += first.ahead.count + (beyond ? count_between : 0);
    s.lists.before[i] = before.mass;
    if (goals.cut.between(before, {before.count + 1, before.mass + weight}))
      tell(s, {id_of(token), before, weight, false});
  });
  cluster_sync();
  const Goal drawn = goals.drawn(cut.bin < 0 ? kept : s.place.ahead.mass + s.place.weight);
  for (int i = block_rank() + kBlocks * static_cast<int>(threadIdx.x); i < n;
       i += kBlocks * kThreads) {
    const uint64_t before = s.lists.before[i], weight = s.lists.weight[i];
    if (drawn.between({0, before}, {0, before + weight})) *out = id_of(s.lists.all[i]);
  }
}

// One cluster for each row.
template <bool kHeld>
__global__ void __launch_bounds__(kThreads, 2)
    sample_kernel(int32_t* out_ids, LogitArgs logits, DrawArgs draw) {
  extern __shared__ __align__(16) unsigned char memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  cluster_arrive();
  wait_for_previous();
  let_next_start();
  const int64_t r = blockIdx.x / kBlocks;
  const float temperature = draw.temperature[r], top_p = draw.top_p[r], min_p = draw.min_p[r];
  const int top_k = draw.top_k[r];
  const double uniform =
      uniform_draw(static_cast<uint64_t>(draw.seed[r]), static_cast<uint64_t>(draw.draw[r]));
  const Piece<kHeld> piece(logits.data + r * logits.stride, logits.vocab,
                           reinterpret_cast<float*>(memory + sizeof(Shared)));
  clear(s.counts);
  piece.wait();
  const float best = best_of(piece, s.best);
  if (temperature <= 0 || top_p <= 0 || !isfinite(best)) {
    take_first(out_ids + r, piece, s, best);
    return;
  }
  const Line<kHeld> line{piece, Scale(best, temperature, min_p), s, top_k > 0};
  draw_token(out_ids + r, line, top_p, top_k, uniform);
}

}  // namespace

void start_sample(int32_t* out_ids, const LogitArgs& logits, const DrawArgs& draw,
                  cudaStream_t stream) {
  const bool held = sizeof(Shared) + piece_bytes(logits.vocab) <= kMostShared;
  const size_t shared = sizeof(Shared) + (held ? piece_bytes(logits.vocab) : 0);
  const auto kernel = held ? sample_kernel<true> : sample_kernel<false>;
  allow_shared(kernel, kMostShared);
  launch(kernel,
         {.grid = dim3(static_cast<unsigned>(logits.rows) * kBlocks),
          .block = dim3(kThreads),
          .shared = shared,
          .stream = stream,
          .cluster = kBlocks},
         out_ids, logits, draw);
}

}  // namespace skiff::cuda

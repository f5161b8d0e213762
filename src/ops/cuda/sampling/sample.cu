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

// The row's histogram; returns the weight of tokens that min_p drops: it counts for top_p all the
// same.
template <bool kHeld>
__device__ uint64_t spread(const Line<kHeld>& line) {
  Shared& s = line.s;
  uint64_t dropped = 0;
  line.piece.each([&](int, float v) {
    if (!line.scale.reaches(v)) return;
    const Weight w = line.scale.weight(v);
    if (line.scale.keeps(v)) {
      count_into(s.counts, w.bin, w.steps, line.counted);
    } else {
      dropped += w.units();
    }
  });
  dropped = sum(dropped);
  tell_all(s.dropped, dropped);
  merge(s, line.counted, step_of);
  dropped = 0;
  for (int p = 0; p < kBlocks; ++p) dropped += s.dropped[p];
  return dropped;
}

template <bool kHeld>
__device__ int drawn_id(const Line<kHeld>& line, float top_p, int top_k, double uniform) {
  Shared& s = line.s;
  const uint64_t dropped = spread(line);
  uint64_t mass = 0;  // of the tokens that may be drawn
  for (int b = static_cast<int>(threadIdx.x); b < kBins; b += kThreads) mass += s.mass[b];
  mass = sum(mass);
  const double all = static_cast<double>(mass + dropped);
  const Goal cut{
      .count = top_k > 0 ? static_cast<uint32_t>(top_k) : ~0u,
      .mass = top_p < 1 ? static_cast<uint64_t>(ceil(static_cast<double>(top_p) * all)) : ~0ull,
      .beyond = false};
  Ahead ahead;
  const int last_bin = find_bin(s, line.counted, cut, {}, ahead);
  if (last_bin >= 0) {
    const Place last = place(line, last_bin, cut, ahead);
    mass = last.ahead.mass + last.weight;
    if (last.split_up) {
      clear(s.counts);
      spread(line);
    }
  }
  const Goal drawn{
      .count = ~0u,
      .mass = min(static_cast<uint64_t>(uniform * static_cast<double>(mass)), mass - 1),
      .beyond = true};
  const int bin = find_bin(s, line.counted, drawn, {}, ahead);
  return place(line, bin, drawn, ahead).id;
}

// One cluster for each row.
template <bool kHeld>
__global__ void __launch_bounds__(kThreads, 2)
    sample_kernel(int32_t* out_ids, LogitArgs logits, DrawArgs draw) {
  extern __shared__ __align__(16) unsigned char memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  cluster_arrive();
  clear(s.counts);
  wait_for_previous();
  let_next_start();
  const int64_t r = blockIdx.x / kBlocks;
  const float temperature = draw.temperature[r], top_p = draw.top_p[r], min_p = draw.min_p[r];
  const int top_k = draw.top_k[r];
  const double uniform =
      uniform_draw(static_cast<uint64_t>(draw.seed[r]), static_cast<uint64_t>(draw.draw[r]));
  const Piece<kHeld> piece(logits.data + r * logits.stride, logits.vocab,
                           reinterpret_cast<float*>(memory + sizeof(Shared)));
  const float best = best_of(piece, s.best);
  if (temperature <= 0 || top_p <= 0 || !isfinite(best)) {
    take_first(out_ids + r, piece, s, best);
    return;
  }
  const Scale scale(best, temperature, min_p);
  const int id = drawn_id(Line<kHeld>{piece, scale, s, top_k > 0}, top_p, top_k, uniform);
  if (threadIdx.x == 0 && block_rank() == 0) out_ids[r] = id;
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

// ops/cuda/sampling/draw.cuh -- the sampling parameters of a row, and the goals that follow from
// them: places among the tokens in the order of falling probability ("the line").
#pragma once
#include "ops/cuda/sampling/kernels.h"
#include "ops/cuda/sampling/row.cuh"

namespace skiff::cuda {

// The finalizer of SplitMix64 and the draw of ops/uniform.cc.
__device__ inline uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}
__device__ inline double uniform_draw(uint64_t seed, uint64_t draw) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;
  return static_cast<double>(mix(mix(seed + kGolden) + kGolden * (draw + 1)) >> 11) * 0x1p-53;
}

struct Draw {
  float temperature, top_p, min_p;
  int top_k;
  double uniform;  // in [0, 1)

  Draw() = default;
  __device__ Draw(const DrawArgs& args, int64_t r)
      : temperature(args.temperature[r]),
        top_p(args.top_p[r]),
        min_p(args.min_p[r]),
        top_k(args.top_k[r]),
        uniform(uniform_draw(static_cast<uint64_t>(args.seed[r]),
                             static_cast<uint64_t>(args.draw[r]))) {}
  // Returns whether the best token is taken without a draw.
  __device__ bool greedy(float best) const {
    return temperature <= 0 || top_p <= 0 || !isfinite(best);
  }
};

// The number of tokens, and their mass, before a place on the line.
struct Ahead {
  uint32_t count = 0;
  uint64_t mass = 0;
};

// A goal is reached by the first token that makes up `count` tokens or `mass`, itself included;
// with `beyond` the mass must be exceeded.
struct Goal {
  uint32_t count;
  uint64_t mass;
  bool beyond;
  __device__ bool reached(const Ahead& a) const {
    return a.count >= count || (beyond ? a.mass > mass : a.mass >= mass);
  }
  __device__ bool between(const Ahead& before, const Ahead& after) const {
    return reached(after) && !reached(before);
  }
};

// The goals of a draw: where the kept tokens end, and the drawn token. top_p is a fraction of the
// mass that top_k and min_p leave.
struct Goals {
  uint32_t count;  // top_k; all bits set where there is none
  double top_p, uniform;
  __device__ explicit Goals(const Draw& draw)
      : count(draw.top_k > 0 ? static_cast<uint32_t>(draw.top_k) : ~0u),
        top_p(static_cast<double>(draw.top_p)),
        uniform(draw.uniform) {}
  __device__ bool by_count() const { return count < ~0u; }
  __device__ bool by_mass() const { return top_p < 1; }
  // The mass that top_k leaves must be found before the cut can be.
  __device__ bool nested() const { return by_count() && by_mass(); }
  // The end of top_k.
  __device__ Goal limit() const { return {.count = count, .mass = ~0ull, .beyond = false}; }
  // The end of the kept tokens, where `left` is the mass that top_k and min_p leave.
  __device__ Goal cut(uint64_t left) const {
    if (!by_mass()) return limit();
    return {.count = ~0u,
            .mass = static_cast<uint64_t>(ceil(top_p * static_cast<double>(left))),
            .beyond = false};
  }
  __device__ Goal drawn(uint64_t mass) const {
    return {.count = ~0u,
            .mass = min(static_cast<uint64_t>(uniform * static_cast<double>(mass)), mass - 1),
            .beyond = true};
  }
};

// Run by the first block that has the greatest logit: finds the first token that has it.
template <bool kHeld, int kN>
__device__ void take_first(int32_t* out, const Piece<kHeld, kN>& piece, float best) {
  uint32_t first = ~0u;
  piece.each([&](int id, float v) {
    if (v == best) first = min(first, static_cast<uint32_t>(id));
  });
  first = reduce<kN>(first, [](uint32_t a, uint32_t b) { return min(a, b); });
  if (threadIdx.x == 0) *out = best == kNever ? 0 : static_cast<int32_t>(first);
}

}  // namespace skiff::cuda

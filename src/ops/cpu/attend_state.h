// ops/cpu/attend_state.h -- the memory of attention: running softmaxes, and what a thread works
// with.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>

#include "base/round_up.h"
#include "ops/cpu/isa/kernels.h"
#include "ops/cpu/scratch.h"

namespace skiff::cpu {

// The softmax of some query vectors so far: maximum, sum, weighted values.
struct State {
  static constexpr float kNothing = -std::numeric_limits<float>::infinity();

  float *max, *sum, *o;

  static int64_t floats(int queries, int64_t o_stride) {
    return round_up(queries * (o_stride + 2), 16);
  }
  static State in(float* memory, int queries, int64_t o_stride) {
    return {memory + queries * o_stride, memory + queries * (o_stride + 1), memory};
  }
  State from(int query, int64_t o_stride) const {
    return {max + query, sum + query, o + query * o_stride};
  }
  void reset(int queries, int64_t o_stride) const {
    std::fill_n(max, queries, kNothing);
    std::fill_n(sum, queries, 0.0f);
    std::fill_n(o, queries * o_stride, 0.0f);
  }
};

// Merges `more`, which covers later positions, into `into`. Vectors that saw no position are
// unchanged.
inline void merge(const State& into, const State& more, int queries, int64_t o_stride) {
  for (int i = 0; i < queries; ++i) {
    if (more.max[i] == State::kNothing) continue;
    float* o = into.o + i * o_stride;
    const float* p = more.o + i * o_stride;
    const float top = std::max(into.max[i], more.max[i]);
    const float keep = std::exp(into.max[i] - top), gain = std::exp(more.max[i] - top);
    for (int64_t d = 0; d < o_stride; ++d) o[d] = o[d] * keep + p[d] * gain;
    into.sum[i] = into.sum[i] * keep + more.sum[i] * gain;
    into.max[i] = top;
  }
}

// The memory of one thread.
struct Workspace {
  float *kt, *v, *scores, *q, *running, *piece;
  int32_t *begin, *end;

  // `dim` elements of a key, `o_stride` of a value. What tiles need (TileAttend) lies in the same
  // memory: keys in `kt`, values in `v`, their sums in `scores`.
  static std::array<int64_t, 7> sizes_of(int64_t dim, int64_t o_stride, int queries) {
    const int64_t state = State::floats(queries, o_stride);
    return {round_up(dim, 16) * kKvBlock,
            round_up(o_stride, kKvBlock) * kKvBlock,
            std::max(int64_t{queries} * kKvBlock, kQueryLanes * tile_sums_stride(o_stride)),
            (queries + kQueryLanes) * padded_dim(dim),
            state,
            state,
            int64_t{2} * round_up(queries, 16)};
  }
  static int64_t tile_sums_stride(int64_t o_stride) {
    return round_up(o_stride, kKvBlock) + kQueryLanes;
  }
  static int64_t floats(int64_t dim, int64_t o_stride, int queries) {
    const auto sizes = sizes_of(dim, o_stride, queries);
    return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  }
  static Workspace take(Scratch& scratch, int64_t dim, int64_t o_stride, int queries) {
    const auto sizes = sizes_of(dim, o_stride, queries);
    float* at = scratch.take<float>(floats(dim, o_stride, queries));
    auto next = [&, i = size_t{0}]() mutable { return std::exchange(at, at + sizes[i++]); };
    Workspace w{};
    w.kt = next(), w.v = next(), w.scores = next(), w.q = next();
    w.running = next(), w.piece = next();
    w.begin = reinterpret_cast<int32_t*>(next());
    w.end = w.begin + round_up(queries, 16);
    return w;
  }
};

}  // namespace skiff::cpu

// ops/cuda/rows/held_norm.cuh -- the norm of a row that a block's threads hold in registers.
#pragma once
#include "ops/cuda/block.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/rows/matrix.cuh"
#include "ops/cuda/vector.cuh"

namespace skiff::cuda {

constexpr int kNormVector = 4;          // elements of an access
constexpr int kMostHeldThreads = 1024;  // threads of a block

struct HeldNorm {
  Matrix out, residual;
  const float* weight;
  float eps;
  int cols;
};

struct NothingElse {
  template <class V>
  __device__ void operator()(const V&) const {}
};

// Adds a delta to the residual and norms the sum. One block for each row, of which a thread holds
// kPieces accesses: all of them are under way at once, and the norm's weights, which no kernel
// writes, are there before griddepcontrol.wait. `delta(to, column)` gives a thread four elements
// of the row's delta; where `added` is false there is none. `then(v)` gets the thread's results
// [kPieces][kNormVector], zeros beyond the row.
template <class T, int kPieces, class Delta, class Then = NothingElse>
__device__ __forceinline__ void held_norm(const HeldNorm& a, bool added, Delta delta,
                                          Then then = {}) {
  constexpr int kVector = kNormVector;
  let_next_start();
  const int first = static_cast<int>(threadIdx.x) * kVector;
  const int step = static_cast<int>(blockDim.x) * kVector;
  float w[kPieces][kVector], v[kPieces][kVector] = {}, d[kPieces][kVector] = {};
  const auto for_pieces = [&](auto f) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      if (const int c = first + i * step; c < a.cols) f(i, c);
  };
  for_pieces([&](int i, int c) { load<kVector>(w[i], a.weight + c); });
  wait_for_previous();
  const int64_t r = blockIdx.x;
  float* x = row_of<float>(a.residual, r);
  for_pieces([&](int i, int c) { load<kVector>(v[i], x + c); });
  if (added) for_pieces([&](int i, int c) { delta(d[i], c); });
  float squares = 0;
  for_pieces([&](int i, int c) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      if (added) v[i][j] += d[i][j];
      squares += v[i][j] * v[i][j];
    }
    if (added) store<kVector>(x + c, v[i]);
  });
  const float scale = rsqrtf(block_sum(squares) / static_cast<float>(a.cols) + a.eps);
  for_pieces([&](int i, int c) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) v[i][j] = v[i][j] * scale * w[i][j];
    store<kVector>(row_of<T>(a.out, r) + c, v[i]);
  });
  then(v);
}

// Returns how a row of so many columns is held: accesses of a thread, and threads; 0 accesses
// where it is too long.
struct HeldShape {
  int pieces = 0;
  unsigned threads = 0;
};
constexpr HeldShape held_shape(int cols) {
  const int items = cols / kNormVector;
  const int threads = items >= kMostHeldThreads ? kMostHeldThreads : (items + 31) / 32 * 32;
  const int pieces = items <= kMostHeldThreads ? 1 : 2;
  return {cols % kNormVector != 0 || items > 2 * kMostHeldThreads ? 0 : pieces,
          static_cast<unsigned>(threads)};
}

}  // namespace skiff::cuda

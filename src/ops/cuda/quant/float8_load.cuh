// ops/cuda/quant/float8_load.cuh -- the two producers of the streamed GEMM of e4m3 weights that lie
// row by row: one thread copies weights, one rows of x and their scales.
#pragma once
#include "ops/cuda/linear/stream_load.cuh"
#include "ops/cuda/quant/float8_args.cuh"

namespace skiff::cuda::float8 {

template <class Ring, bool kGated>
struct Float8Weights {
  const CUtensorMap& map;  // its elements are pairs of weights
  const StreamArgs& a;

  __device__ void operator()(const Ring& ring, const TileSlice& s, int chunk, int stage) const {
    const uint32_t barrier = ring.full + 8 * stage;
    barrier_expect(barrier, Ring::kWeightBytes);
    for (int t = 0; t < Ring::kTiles; ++t)
      copy(ring.weights(stage) + t * Ring::kTileBytes, barrier, s.tile * Ring::kTiles + t, s,
           chunk);
  }

 private:
  __device__ void copy(uint32_t to, uint32_t barrier, int tile, const TileSlice& s,
                       int chunk) const {
    if constexpr (kGated)
      copy_tile(to, map, barrier, chunk * (kColumns / 2), 0, 0, tile * (kTileRows / 16),
                s.job.expert, a.keep_weights);
    else
      copy_tile(to, map, barrier, chunk * (kColumns / 2), tile * kTileRows, 0, 0, s.job.expert,
                a.keep_weights);
  }
};

template <class Ring>
struct Float8X {
  static constexpr int N = Ring::kRows;
  static constexpr int kBox = full_box_rows(N);

  const CUtensorMap& map;  // its boxes have 128 bytes of kBox rows
  const StreamArgs& a;
  const Float8Args& q;

  // Rows beyond those of the job are left out, in whole boxes. Scales are copied from an aligned
  // address on.
  __device__ void operator()(const Ring& ring, const TileSlice& s, int chunk, int stage) const {
    constexpr int kBoxBytes = kBox * kColumns, kScaleBytes = Ring::kScaleBytes;
    const int boxes = (s.job.rows + kBox - 1) / kBox, row = first_row(a, s);
    const uint32_t barrier = ring.full + 8 * stage, to = ring.rows(stage);
    barrier_expect(barrier, boxes * kBoxBytes + kScaleBytes);
    for (int i = 0; i < boxes; ++i)
      copy_tile(to + i * kBoxBytes, map, barrier, chunk * (kColumns / 2), row + i * kBox);
    copy_bytes(ring.scales(stage), q.x_scales + chunk * q.x_scale_stride + row / 4 * 4, kScaleBytes,
               barrier, Keep::kNormal);
  }
};

}  // namespace skiff::cuda::float8

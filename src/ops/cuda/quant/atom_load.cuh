// ops/cuda/quant/atom_load.cuh -- the two producers of the streamed GEMM of packed weights: one
// thread copies atoms, one rows of x.
#pragma once
#include "ops/cuda/linear/stream_load.cuh"
#include "ops/cuda/quant/atom_args.cuh"

namespace skiff::cuda::atoms {

using namespace streamed;

template <class Ring, bool kGated>
struct AtomCopy {
  const StreamArgs& a;
  const AtomArgs& q;

  __device__ void operator()(const Ring& ring, const TileSlice& s, int chunk, int stage) const {
    constexpr int kPieces = kGated ? 2 : 1, kAtoms = kBlockAtoms / kPieces, kTiles = Ring::kTiles;
    const uint32_t barrier = ring.full + 8 * stage;
    uint32_t to = ring.weights(stage);
    const int bytes = kAtoms * q.atom_bytes;
    const std::byte* from = q.atoms + s.job.expert * q.matrix_bytes + chunk * q.chunk_bytes +
                            int64_t{s.tile} * (kTiles * bytes);
    barrier_expect(barrier, kTiles * kPieces * bytes);
    if constexpr (!kGated) {
      copy_bytes(to, from, kTiles * bytes, barrier, a.keep_weights);
    } else {
#pragma unroll
      for (int t = 0; t < kTiles; ++t, to += 2 * bytes, from += bytes) {
        copy_bytes(to, from, bytes, barrier, a.keep_weights);
        copy_bytes(to + bytes, from + int64_t{q.up_atoms} * q.atom_bytes, bytes, barrier,
                   a.keep_weights);
      }
    }
  }
};

template <class Ring, int N>
struct XCopy {
  static constexpr int kBox = box_rows(N);
  static constexpr int kHalves = Ring::kHeld ? 1 : 2;

  const CUtensorMap& map;  // its boxes have 128 bytes of kBox rows
  const StreamArgs& a;
  const AtomArgs& q;

  // Rows beyond those of the job are left out, in whole boxes.
  __device__ void operator()(const Ring& ring, const TileSlice& s, int chunk, int stage) const {
    constexpr int kBoxBytes = kBox * 128, kHalfBytes = N * 128;
    const int boxes = (s.job.rows + kBox - 1) / kBox, row = a.one_row ? 0 : s.job.first;
    const uint32_t barrier = ring.full + 8 * stage, to = ring.rows(stage);
    barrier_expect(barrier, kHalves * boxes * kBoxBytes + Ring::kScaleBytes);
    for (int h = 0; h < kHalves; ++h) {
      for (int i = 0; i < boxes; ++i)
        copy_tile(to + h * kHalfBytes + i * kBoxBytes, map, barrier, (chunk * kHalves + h) * 64,
                  row + i * kBox);
    }
    if constexpr (Ring::kHeld)
      copy_bytes(ring.scales(stage), q.x_scales + chunk * q.x_scale_stride + row / 4 * 4,
                 Ring::kScaleBytes, barrier, Keep::kNormal);
  }
};

}  // namespace skiff::cuda::atoms

#include "ops/cuda/quant/unpack.h"

#include "base/check.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/shape.h"

namespace skiff::cuda {
namespace {

constexpr int kWarps = 8, kAtomsOfWarp = 4;
constexpr int kElements = kAtomHeight * kAtomWidth;

struct Unpack {
  const std::byte* atoms;  // where the first row begins
  int64_t chunk_bytes;
  int atom_bytes, scales_at;
  uint8_t* to;
  float* scales;
  int64_t columns, scale_stride;
  int atoms_of_chunk;  // atoms of it that are unpacked
};

// Each warp brings some atoms of a chunk into rows, through shared memory.
__global__ void __launch_bounds__(kWarps * 32) unpack_kernel(Unpack a) {
  let_next_start();
  wait_for_previous();
  __shared__ alignas(16) uint8_t rows[kWarps][kElements];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, chunk = blockIdx.y;
  const int first = static_cast<int>(blockIdx.x * kWarps + warp) * kAtomsOfWarp;
  const std::byte* from = a.atoms + chunk * a.chunk_bytes;
  uint4 words[kAtomsOfWarp][2];
#pragma unroll
  for (int i = 0; i < kAtomsOfWarp; ++i) {
    if (first + i >= a.atoms_of_chunk) continue;
    const auto* atom = reinterpret_cast<const uint4*>(from + int64_t{first + i} * a.atom_bytes);
    words[i][0] = __ldcs(atom + lane);
    words[i][1] = __ldcs(atom + 32 + lane);
  }
#pragma unroll
  for (int i = 0; i < kAtomsOfWarp; ++i) {
    const int atom = first + i;
    if (atom >= a.atoms_of_chunk) continue;
    auto* mine = reinterpret_cast<uint32_t*>(rows[warp] + lane / 4 * kAtomWidth) + lane % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4& w = words[i][half];
      mine[16 * half] = w.x, mine[16 * half + 4] = w.y;
      mine[16 * half + 8] = w.z, mine[16 * half + 12] = w.w;
    }
    __syncwarp();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = half * 4 + lane / 8, piece = lane % 8;
      const int64_t at =
          (int64_t{atom} * kAtomHeight + row) * a.columns + chunk * kAtomWidth + 16 * piece;
      *reinterpret_cast<uint4*>(a.to + at) =
          *reinterpret_cast<const uint4*>(rows[warp] + row * kAtomWidth + 16 * piece);
    }
    __syncwarp();
    if (atom % (128 / kAtomHeight) == 0 && lane == 0)
      a.scales[atom / (128 / kAtomHeight) * a.scale_stride + chunk] =
          *reinterpret_cast<const float*>(from + int64_t{atom} * a.atom_bytes + a.scales_at);
  }
}

}  // namespace

bool unpacks(const Linear& w) {
  if (!is_atoms(w) || w.experts > 0 || w.format.block_out != 128 || w.format.block_in != 128)
    return false;
  const std::optional<AtomFormat> format = atom_format(w.format);
  return format && format->codes == Codes::kFloat8Held && format->scale == AtomScale::kAtomF32;
}

void unpack(void* to, float* scales, const Linear& w, const UnpackedRows& part,
            cudaStream_t stream) {
  const AtomShape shape = atom_shape(*atom_format(w.format), features(w), inputs(w));
  const int atom_bytes = shape.format.bytes();
  SKIFF_CHECK(part.first % 128 == 0 && part.rows % 128 == 0 &&
              part.columns == shape.chunks * kAtomWidth &&
              part.first + part.rows <= shape.atoms * kAtomHeight);
  const Unpack a = {
      .atoms = static_cast<const std::byte*>(w.weight.data) + part.first / kAtomHeight * atom_bytes,
      .chunk_bytes = shape.atoms * atom_bytes,
      .atom_bytes = atom_bytes,
      .scales_at = shape.format.scales_at(),
      .to = static_cast<uint8_t*>(to),
      .scales = scales,
      .columns = part.columns,
      .scale_stride = part.scale_stride(),
      .atoms_of_chunk = static_cast<int>(part.rows / kAtomHeight)};
  constexpr int kOfBlock = kWarps * kAtomsOfWarp;
  const dim3 grid = {static_cast<unsigned>((a.atoms_of_chunk + kOfBlock - 1) / kOfBlock),
                     static_cast<unsigned>(shape.chunks)};
  launch(unpack_kernel, {grid, kWarps * 32, 0, stream}, a);
}

}  // namespace skiff::cuda

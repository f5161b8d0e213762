#include "ops/cuda/quant/pack_atoms.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/quant/codes.cuh"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 256, kMaxBlocks = 4096;

struct Pack {
  std::byte* to;
  float* row_scales;
  const void *codes, *scales, *zeros;
  DType dtype, scale_dtype, zero_dtype;
  int64_t rows, in, scale_columns, atoms, chunks;
  int64_t first_code, first_scale;  // where the matrix begins
  int block_out, block_in;
  AtomFormat format;
};

// The number of the scale and zero point of an element; those of padding repeat the last ones.
__device__ int64_t block_of(const Pack& p, int64_t row, int64_t column) {
  row = min(row, p.rows - 1);
  column = min(column, p.in - 1);
  const int64_t r = p.block_out == 0 ? 0 : row / p.block_out;
  const int64_t c = p.block_in == 0 ? 0 : column / p.block_in;
  return p.first_scale + r * p.scale_columns + c;
}

__device__ unsigned code_of(const Pack& p, int64_t row, int64_t column) {
  const bool inside = row < p.rows && column < p.in;
  const int code = inside ? code_at(p.codes, p.dtype, p.first_code + row * p.in + column) : 0;
  return p.dtype == DType::kI4 ? code + 8 : code & 255;
}

// A thread has a byte of an atom's elements.
__global__ void __launch_bounds__(kThreads) pack_codes(Pack p) {
  const bool four = p.format.codes == Codes::kFour;
  const int columns = four ? kAtomWidth / 2 : kAtomWidth;
  const int64_t all = p.chunks * p.atoms * kAtomHeight * columns;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all;
       i += int64_t{gridDim.x} * kThreads) {
    const int index = static_cast<int>(i % columns), row = static_cast<int>(i / columns % 8);
    const int64_t atom = i / columns / kAtomHeight, chunk = atom / p.atoms;
    const int column = four ? index / 8 * 16 + index % 8 : index;
    const int64_t r = atom % p.atoms * kAtomHeight + row, c = chunk * kAtomWidth + column;
    unsigned byte = code_of(p, r, c);
    if (four) byte |= code_of(p, r, c + 8) << 4;
    const int at = atom_place(p.format.codes, row, column).byte;
    p.to[atom * p.format.bytes() + at] = static_cast<std::byte>(byte);
  }
}

// A thread has a group of an atom's row.
__global__ void __launch_bounds__(kThreads) pack_scales(Pack p) {
  const int groups = max(p.format.groups, p.format.zero_groups());
  const int64_t all = p.chunks * p.atoms * groups * kAtomHeight;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < all;
       i += int64_t{gridDim.x} * kThreads) {
    const int row = static_cast<int>(i % kAtomHeight);
    const int group = static_cast<int>(i / kAtomHeight % groups);
    const int64_t atom = i / kAtomHeight / groups;
    const int64_t r = atom % p.atoms * kAtomHeight + row;
    const int64_t c = atom / p.atoms * kAtomWidth + group * (kAtomWidth / groups);
    const int64_t block = block_of(p, r, c);
    std::byte* to = p.to + atom * p.format.bytes();
    const int at = group * kAtomHeight + row;
    if (p.format.zeros) {
      const int zero = code_at(p.zeros, p.zero_dtype, block);
      to[p.format.zeros_at() + at] = static_cast<std::byte>(zero);
    }
    if (p.format.groups == 0) continue;
    std::byte* scales = to + p.format.scales_at();
    const float scale = float_at(p.scales, p.scale_dtype, block);
    if (p.format.scale == AtomScale::kAtomF32) {
      if (row == 0) reinterpret_cast<float*>(scales)[group] = scale;
    } else if (p.format.scale == AtomScale::kRowF32) {
      reinterpret_cast<float*>(scales)[at] = scale;
    } else {
      reinterpret_cast<uint16_t*>(scales)[at] = static_cast<const uint16_t*>(p.scales)[block];
    }
  }
}

__global__ void __launch_bounds__(kThreads) pack_row_scales(Pack p) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= p.atoms * kAtomHeight) return;
  p.row_scales[row] = float_at(p.scales, p.scale_dtype, block_of(p, row, 0));
}

unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>(
      std::clamp<int64_t>((threads + kThreads - 1) / kThreads, 1, kMaxBlocks));
}

}  // namespace

void pack_atoms(void* to, float* row_scales, const Linear& plain, const WeightFormat& format,
                const PackedMatrix& matrix, cudaStream_t stream) {
  const std::optional<AtomFormat> packed = atom_format(format);
  SKIFF_CHECK(packed && plain.format == format && plain.packing == Packing::kPlain, "{}",
              describe(format));
  const int64_t rows = features(plain), in = inputs(plain);
  const AtomShape shape = atom_shape(*packed, rows, in);
  const auto blocks_of = [](int64_t size, int block) {
    return block == 0 ? 1 : (size + block - 1) / block;
  };
  const int64_t scale_columns = blocks_of(in, format.block_in);
  const Pack p = {.to = static_cast<std::byte*>(to),
                  .row_scales = row_scales,
                  .codes = plain.weight.data,
                  .scales = plain.scale.data,
                  .zeros = plain.zero.data,
                  .dtype = format.dtype,
                  .scale_dtype = plain.scale.dtype,
                  .zero_dtype = plain.zero.dtype,
                  .rows = rows,
                  .in = in,
                  .scale_columns = scale_columns,
                  .atoms = shape.atoms,
                  .chunks = shape.chunks,
                  .first_code = matrix.elements * rows * in,
                  .first_scale = matrix.scales * blocks_of(rows, format.block_out) * scale_columns,
                  .block_out = format.block_out,
                  .block_in = format.block_in,
                  .format = *packed};
  if (shape.matrix_bytes() == 0) return;
  check(cudaMemsetAsync(to, 0, static_cast<size_t>(shape.matrix_bytes()), stream), "clearing");
  pack_codes<<<blocks_for(shape.matrix_bytes()), kThreads, 0, stream>>>(p);
  if (packed->groups > 0 || packed->zeros)
    pack_scales<<<blocks_for(shape.matrix_bytes() / 16), kThreads, 0, stream>>>(p);
  if (packed->groups == 0)
    pack_row_scales<<<blocks_for(shape.row_scales()), kThreads, 0, stream>>>(p);
  check(cudaGetLastError(), "packing a quantized weight");
}

}  // namespace skiff::cuda

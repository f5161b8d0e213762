// ops/cuda/linear/shape.h -- what a kernel must know of a weight before it may read it.
#pragma once
#include "weights/linear.h"

namespace skiff::cuda {

// Rows and columns of a matrix, or of each matrix of a stack.
inline int64_t features(const Linear& w) {
  return w.experts > 0 ? w.weight.dim[1] : w.weight.rows();
}
inline int64_t inputs(const Linear& w) {
  return w.experts > 0 ? w.weight.cols() / w.weight.dim[1] : w.weight.cols();
}

// Returns whether the weights are numbers of this type, row by row without gaps: neither packed nor
// quantized.
inline bool is_plain(const Linear& w, DType dtype) {
  return w.packing == Packing::kPlain && !w.format.quantized() && w.weight.dtype == dtype &&
         w.weight.contiguous();
}
// Returns whether the weights are a stack of bf16 that is packed as tiles.h says.
inline bool is_tiles(const Linear& w) {
  return w.packing == Packing::kTiles && !w.format.quantized() && w.weight.dtype == DType::kBF16 &&
         w.experts > 0;
}
inline bool is_plain(const Linear& w) { return is_plain(w, w.weight.dtype); }
// Returns whether the weights are quantized and packed as quant/atoms.h says.
inline bool is_atoms(const Linear& w) {
  return w.packing == Packing::kTiles && w.format.quantized();
}
// Returns whether the weights are e4m3 row by row, as quant/float8_rows.h says.
inline bool is_float8_rows(const Linear& w) {
  return w.packing == Packing::kPlain && w.format.quantized() && w.format.block_in > 0;
}
// Returns whether the weights are e4m3 row by row, as quant/float8_channels.h says.
inline bool is_float8_channels(const Linear& w) {
  return w.packing == Packing::kPlain && w.format.quantized() && w.format.block_in == 0;
}

}  // namespace skiff::cuda

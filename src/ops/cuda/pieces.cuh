// ops/cuda/pieces.cuh -- rows as one line of pieces, which threads divide.
#pragma once
#include <cstdint>

namespace skiff::cuda {

// Pieces of rows lie one after the other; this gives the row and the column of those from `first`
// on. A division of 64 bits for each piece would take longer than to move it.
struct Pieces {
  int64_t row;
  unsigned column, columns;

  __device__ Pieces(int64_t first, int of_row)
      : row(first / of_row),
        column(static_cast<unsigned>(first % of_row)),
        columns(static_cast<unsigned>(of_row)) {}
  __device__ int64_t row_of(unsigned i) const { return row + (column + i) / columns; }
  __device__ int column_of(unsigned i) const { return static_cast<int>((column + i) % columns); }
};

}  // namespace skiff::cuda

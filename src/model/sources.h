// model/sources.h -- which stored tensors fill which slot, settled before a byte is copied.
#pragma once
#include <array>
#include <span>
#include <vector>

#include "model/family.h"
#include "model/slots.h"
#include "model/stored_format.h"
#include "weights/checkpoint.h"

namespace skiff::model {

// Rows [row, row + rows) and columns [col, col + cols) of a stored tensor, seen as [out, in]
// however it is stored; vectors and stacks of experts are always taken whole. For scales and zero
// points a row or column is one of blocks.
struct Piece {
  const StoredTensor* tensor = nullptr;
  int64_t row = 0, rows = 0, col = 0, cols = 0;

  int64_t elements() const { return rows * cols; }
};

// The pieces of one slot by their role, in the order in which they are stacked: for an expert stack
// all pieces of expert 0, then of expert 1, ... A role has as many pieces as there are weights, or
// none.
struct Source {
  std::array<std::vector<Piece>, kNumRoles> pieces;
  WeightFormat format;      // float32 where plain weights of several dtypes are stacked
  bool transposed = false;  // matrices are stored [in, out]

  std::vector<Piece>& of(Role role) { return pieces[static_cast<size_t>(role)]; }
  const std::vector<Piece>& of(Role role) const { return pieces[static_cast<size_t>(role)]; }
};

// One Source per slot; that of a tied head is empty. Throws LoadError if a slot cannot be
// filled, a shape differs, a tensor is of no format in `formats`, or one is left over.
std::vector<Source> find_sources(const Checkpoint& checkpoint, std::span<const NameRule> rules,
                                 std::span<const StoredFormat> formats, std::span<const Slot> slots,
                                 const ModelSpec& spec);

}  // namespace skiff::model

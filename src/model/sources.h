// model/sources.h -- which stored tensors fill which slot, settled before a byte is copied.
#pragma once
#include <span>
#include <vector>

#include "model/family.h"
#include "model/slots.h"
#include "weights/checkpoint.h"

namespace skiff {

// Rows [row, row + rows) and columns [col, col + cols) of a stored tensor, seen as [out, in]
// however it is stored; of vectors and of stacks of experts always the whole.
struct Piece {
  const StoredTensor* tensor = nullptr;
  int64_t row = 0, rows = 0, col = 0, cols = 0;

  int64_t elements() const { return rows * cols; }
};

// The pieces of one slot, in the order in which they are stacked: for an expert stack all pieces
// of expert 0, then of expert 1, ...
struct Source {
  std::vector<Piece> weights;
  std::vector<Piece> biases;  // as many as weights, or none
  bool transposed = false;    // stored [in, out]
};

// One Source per slot; that of a tied head is empty. Throws LoadError if a slot cannot be
// filled, a shape differs, a dtype is not one we read, or a tensor is left over.
std::vector<Source> find_sources(const Checkpoint& checkpoint, std::span<const NameRule> rules,
                                 std::span<const Slot> slots, const ModelSpec& spec);

}  // namespace skiff

// model/sources.h -- which stored tensors fill which slot, settled before a byte is copied.
#pragma once
#include <span>
#include <vector>

#include "model/family.h"
#include "model/slots.h"
#include "weights/checkpoint.h"

namespace skiff {

// The pieces of one slot, in the order in which they are stacked: for an expert stack all pieces
// of expert 0, then of expert 1, ...
struct Source {
  std::vector<const StoredTensor*> weights;
  std::vector<const StoredTensor*> biases;  // as many as weights, or none
  bool transposed = false;                  // stored [in, out]
};

// One Source per slot; that of a tied head is empty. Throws LoadError if a slot cannot be
// filled, a shape differs, a dtype is not one we read, or a tensor is left over.
std::vector<Source> find_sources(const Checkpoint& checkpoint, std::span<const NameRule> rules,
                                 std::span<const Slot> slots, const ModelSpec& spec);

}  // namespace skiff

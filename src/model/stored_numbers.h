// model/stored_numbers.h -- single numbers of stored tensors, which may lie at any address.
#pragma once
#include <cstring>

#include "model/stored_format.h"

namespace skiff::model {

template <class T>
T stored(const StoredTensor& tensor, int64_t index) {
  T value;
  std::memcpy(&value, tensor.bytes.data() + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// Element `index` of words that hold 32 / bits elements each, the first in the lowest bits.
inline unsigned packed(const StoredTensor& words, int64_t word, int64_t element, int bits) {
  return stored<uint32_t>(words, word) >> (element * bits) & ((1u << bits) - 1);
}

// A number of a tensor of integers, I32 or I64.
inline int64_t stored_integer(const StoredTensor& tensor, int64_t index) {
  return tensor.entry->dtype == "I32" ? stored<int32_t>(tensor, index)
                                      : stored<int64_t>(tensor, index);
}

// A number of a tensor of floats, or of powers of two: F8_E8M0, and U8 that stands for it.
float stored_float(const StoredTensor& tensor, int64_t index);
// Copies the scales of a module whose tensor of kScale is [blocks of out, blocks of in], or
// transposed if the module is.
void stored_scales(const StoredModule& module, const BlockRows& rows, float* to);

}  // namespace skiff::model

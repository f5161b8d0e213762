// weights/safetensors.h -- the header of a safetensors file, checked before any of it is
// used. Format: huggingface.co/docs/safetensors: u64 little-endian header length, a JSON
// header {"name": {"dtype", "shape", "data_offsets"}, "__metadata__": {...}}, then the data.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace skiff {

constexpr size_t kMaxSafetensorsHeader = 100'000'000;  // bytes, as in the format's own reader

struct TensorEntry {
  std::string name;
  std::string dtype;            // as written: "BF16", "F8_E4M3", ...
  std::vector<int64_t> shape;   // every dimension >= 0; the product fits 63 bits
  uint64_t begin = 0, end = 0;  // bytes from the start of the file
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // by rising offset
};

// `file` is the whole file. Refused: a header that does not fit, JSON of any other form, unknown
// dtypes, duplicate names, a byte range that is not dtype x shape, ranges that overlap, leave
// gaps or do not end with the file. Nothing is allocated in proportion to a number in the file.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file);

// The bits of one element; 0 for a name that the format does not have.
int safetensors_bits(std::string_view dtype);
// The DType of that name, where there is one. The format has no names for kI4 and kU4, which
// checkpoints pack into wider integers.
std::optional<DType> dtype_of_safetensors(std::string_view dtype);

}  // namespace skiff

// gguf/gguf.h -- the header of a GGUF file, checked before any of it is used. Format:
// github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian: counts, then
// key-value pairs, then the tensors' names, shapes, types and offsets, then the data.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace skiff {

constexpr size_t kMaxGgufHeader = 256u << 20;  // bytes

// How one type of tensor is stored: blocks of `elements` values in `bytes` bytes along a row.
struct GgufType {
  uint32_t id;
  std::string_view name;
  int64_t elements, bytes;
};
// nullptr for a name that is not known.
const GgufType* find_gguf_type(std::string_view name);

struct GgufTensor {
  std::string name;
  std::string_view type;        // "F32", "Q4_K", ...
  std::vector<int64_t> shape;   // slowest first, the reverse of the file's order
  uint64_t begin = 0, end = 0;  // bytes from the start of the file
  size_t file = 0;              // which one, where a model has several (gguf_files.h)
};

struct GgufHeader {
  Json metadata = Json::object();  // by key; arrays hold numbers, strings or booleans
  std::vector<GgufTensor> tensors;
};

// `file` is the whole file. Refused: a header that does not fit, other versions, counts and lengths
// beyond the file, text that is not UTF-8, duplicate names, unknown types, rows that are not whole
// blocks, more than 2^22 elements in all arrays, offsets that are not aligned, and data that
// overlap or end beyond the file. Besides the texts themselves memory stays within some hundred
// MiB.
Result<GgufHeader> parse_gguf(std::span<const std::byte> file);

}  // namespace skiff

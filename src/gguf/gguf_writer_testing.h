// gguf/gguf_writer_testing.h -- for tests: the bytes of GGUF files, right or wrong on purpose.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace skiff::testing {

struct GgufFileTensor {
  std::string name;
  uint32_t type = 0;           // the number of a type in the format: 0 is F32, 8 is Q8_0
  std::vector<int64_t> shape;  // slowest first
  std::string data;
};

// Writes values one after the other.
class GgufBytes {
 public:
  template <class T>
  GgufBytes& add(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBytes& text(const std::string& value) {
    add<uint64_t>(value.size());
    bytes_ += value;
    return *this;
  }
  // Numbers become u32, i32 or f32; arrays hold texts, i32 or f32.
  GgufBytes& value(const Json& value) {
    if (value.is_string()) return add<uint32_t>(8).text(value.get<std::string>());
    if (value.is_boolean()) return add<uint32_t>(7).add<uint8_t>(value.get<bool>());
    if (value.is_number_unsigned()) return add<uint32_t>(4).add(value.get<uint32_t>());
    if (value.is_number_integer()) return add<uint32_t>(5).add(value.get<int32_t>());
    if (value.is_number()) return add<uint32_t>(6).add(value.get<float>());
    const bool texts = value.empty() || value.front().is_string();
    const bool floats = !texts && value.front().is_number_float();
    add<uint32_t>(9).add<uint32_t>(texts ? 8 : floats ? 6 : 5).add<uint64_t>(value.size());
    for (const Json& element : value) {
      if (texts) text(element.get<std::string>());
      if (floats) add(element.get<float>());
      if (!texts && !floats) add(element.get<int32_t>());
    }
    return *this;
  }
  GgufBytes& align() {
    bytes_.resize((bytes_.size() + 31) / 32 * 32, '\0');
    return *this;
  }
  std::string& bytes() { return bytes_; }

 private:
  std::string bytes_ = "GGUF";
};

inline std::string gguf_bytes(const Json& metadata, const std::vector<GgufFileTensor>& tensors) {
  GgufBytes file;
  file.add<uint32_t>(3).add<uint64_t>(tensors.size()).add<uint64_t>(metadata.size());
  for (const auto& [key, value] : metadata.items()) file.text(key).value(value);
  uint64_t at = 0;
  for (const GgufFileTensor& t : tensors) {
    file.text(t.name).add(static_cast<uint32_t>(t.shape.size()));
    for (size_t i = t.shape.size(); i-- > 0;) file.add(static_cast<uint64_t>(t.shape[i]));
    file.add(t.type).add(at);
    at = (at + t.data.size() + 31) / 32 * 32;
  }
  file.align();
  for (const GgufFileTensor& t : tensors) {
    file.bytes() += t.data;
    file.align();
  }
  return file.bytes();
}

}  // namespace skiff::testing

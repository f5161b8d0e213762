// model/gguf_blocks_testing.h -- for tests: random blocks of each quantized type of GGUF, and their
// values.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "gguf/gguf.h"
#include "model/quantization.h"
#include "model/unpack.h"

namespace skiff::testing {

struct GgufBlockCase {
  const char* type;
  std::vector<size_t> halves;  // where a block has a float16
  char high;  // the upper byte of these with which a matrix of random blocks is a good weight
  const char* hash;  // the values of 3 x 512 have it (gguf_blocks_test.cc); null: none is known
};
inline const std::vector<GgufBlockCase> kGgufBlocks = {
    {"Q4_0", {0}, 0x24, "259484992fc56ab6"},
    {"Q4_1", {0, 2}, 0x24, "fc1e1d6bd9beae73"},
    {"Q5_0", {0}, 0x20, "320bdddca4fdfe3f"},
    {"Q5_1", {0, 2}, 0x20, "179af1be4adc1c7b"},
    {"Q8_0", {0}, 0x14, "139f1cc099b66cd7"},
    {"Q2_K", {80, 82}, 0x18, "4044242097bdc15f"},
    {"Q3_K", {108}, 0x14, "8f981204d2402ac1"},
    {"Q4_K", {0, 2}, 0x0c, "f20532aff2698ec0"},
    {"Q5_K", {0, 2}, 0x08, "caa44297ec571222"},
    {"Q6_K", {208}, 0x04, "0e77a0905431b30f"},
    {"Q8_K", {}, 0, nullptr},
    {"IQ4_NL", {0}, 0x14, "e4ab94a84e6279b7"},
    {"IQ4_XS", {0}, 0x04, "4d0d350b1b2c470d"},
    {"MXFP4", {}, 0, "d6992b8306b3d780"},
};

// The bytes of a linear congruential generator, which any language can draw. Numbers of float16 get
// `high` as their upper byte, Q8_K's scales are 2^-11, and MXFP4's lie between 2^-7 and 1.
inline std::string random_gguf_blocks(const char* name, int64_t elements,
                                      const std::vector<size_t>& halves, char high,
                                      uint32_t seed = 12345) {
  const GgufType& type = *find_gguf_type(name);
  std::string bytes(static_cast<size_t>(elements / type.elements * type.bytes), '\0');
  uint32_t state = seed;
  for (char& b : bytes) {
    state = (state * 1103515245 + 12345) & 0x7fffffff;
    b = static_cast<char>(state >> 16);
  }
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(type.bytes)) {
    for (const size_t half : halves) bytes[at + half + 1] = high;
    if (type.name == "MXFP4") bytes[at] = static_cast<char>(120 | (bytes[at] & 7));
    if (type.name == "Q8_K") bytes.replace(at, 4, std::string("\0\0\0\x3a", 4));
  }
  return bytes;
}

// The values of a matrix, as the loader widens it.
inline std::vector<float> gguf_values(const char* type, int64_t rows, int64_t cols,
                                      const std::string& bytes) {
  const model::Quantization quantization = model::gguf_quantization("test");
  const auto format = std::ranges::find(quantization.formats, type, &model::StoredFormat::name);
  SKIFF_CHECK(format != quantization.formats.end(), "{}", type);
  const TensorEntry entry{.name = type, .dtype = type, .shape = {rows, cols}};
  const StoredTensor tensor{.entry = &entry, .bytes = std::as_bytes(std::span(bytes))};
  model::StoredModule module;
  module.format = &*format;
  module.shape = {.out = rows, .in = cols};
  module.tensors[static_cast<size_t>(model::Role::kWeight)] = &tensor;
  std::vector<float> values(static_cast<size_t>(rows * cols));
  model::widen(module, {0, rows, 0, cols}, values.data());
  return values;
}

}  // namespace skiff::testing

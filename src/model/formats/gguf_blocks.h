// model/formats/gguf_blocks.h -- the types of GGUF with blocks of 32 elements, one element or scale
// at a time: the layouts of ggml's block_q4_0, block_q4_1, block_q5_0, block_q5_1, block_q8_0,
// block_iq4_nl and block_mxfp4 (github.com/ggml-org/ggml/blob/master/src/ggml-common.h). A block
// may begin at any address. What is read lies within the type's size in gguf/gguf.cc for every
// index below its number of elements.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tensor/convert.h"

namespace skiff::model::gguf_blocks {

inline unsigned byte_at(const std::byte* block, int64_t index) {
  return static_cast<unsigned>(block[index]);
}

inline float half_at(const std::byte* block, int64_t index) {
  F16 value;
  std::memcpy(&value, block + index, sizeof value);
  return to_float(value);
}

// Elements j and j + 16 of 32 share a byte.
inline unsigned nibble(const std::byte* codes, int64_t index) {
  return byte_at(codes, index % 16) >> (index / 16 * 4) & 15;
}

inline uint8_t as_element(int code) { return static_cast<uint8_t>(code); }

inline float first_half(const std::byte* block, int64_t) { return half_at(block, 0); }
inline float second_half_negated(const std::byte* block, int64_t) { return -half_at(block, 2); }

inline uint8_t q4_0(const std::byte* block, int64_t i) {
  return as_element(static_cast<int>(nibble(block + 2, i)) - 8);
}
inline uint8_t q4_1(const std::byte* block, int64_t i) {
  return static_cast<uint8_t>(nibble(block + 4, i));
}

// Five bits: the fifth ones of all elements are 32 bits ahead of the others.
inline unsigned five_bits(const std::byte* codes, int64_t i) {
  return nibble(codes + 4, i) | (byte_at(codes, i / 8) >> (i % 8) & 1) << 4;
}
inline uint8_t q5_0(const std::byte* block, int64_t i) {
  return as_element(static_cast<int>(five_bits(block + 2, i)) - 16);
}
inline uint8_t q5_1(const std::byte* block, int64_t i) {
  return static_cast<uint8_t>(five_bits(block + 4, i));
}

inline uint8_t q8_0(const std::byte* block, int64_t i) {
  return static_cast<uint8_t>(byte_at(block, 2 + i));
}

// The values of the codes of IQ4_NL and IQ4_XS, which lie closer together where weights are small.
constexpr std::array<int8_t, 16> kUneven = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};

inline uint8_t iq4_nl(const std::byte* block, int64_t i) {
  return as_element(kUneven[nibble(block + 2, i)]);
}

inline uint8_t mxfp4(const std::byte* block, int64_t i) {
  return static_cast<uint8_t>(nibble(block + 1, i));
}
inline float mxfp4_scale(const std::byte* block, int64_t) {
  return std::ldexp(1.0f, static_cast<int>(byte_at(block, 0)) - 127);
}

}  // namespace skiff::model::gguf_blocks

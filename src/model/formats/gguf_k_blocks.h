// model/formats/gguf_k_blocks.h -- the types of GGUF with blocks of 256 elements, one element or
// scale at a time: the layouts of ggml's block_q2_K to block_q8_K and block_iq4_xs
// (github.com/ggml-org/ggml/blob/master/src/ggml-common.h). Scales of groups are integers of a few
// bits, which a float16 of the block multiplies. As in gguf_blocks.h, nothing beyond a block is
// read.
#pragma once
#include "model/formats/gguf_blocks.h"

namespace skiff::model::gguf_blocks {

// Two bits: elements i, i + 32, i + 64 and i + 96 of each 128 share a byte.
inline unsigned two_bits(const std::byte* codes, int64_t i) {
  return byte_at(codes, i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
}
// One bit: elements i, i + 32, ..., i + 224 share a byte.
inline unsigned one_bit(const std::byte* codes, int64_t i) {
  return byte_at(codes, i % 32) >> (i / 32) & 1;
}
// Four bits: elements i and i + 32 of each 64 share a byte.
inline unsigned four_bits(const std::byte* codes, int64_t i) {
  return byte_at(codes, i / 64 * 32 + i % 32) >> (i % 64 / 32 * 4) & 15;
}
inline float signed_scale(float of_block, unsigned code) {
  return of_block * static_cast<float>(static_cast<int>(code) - 32);
}

// Groups of 16, whose scale and minimum share a byte; the two float16 come last.
inline uint8_t q2_k(const std::byte* block, int64_t i) {
  return static_cast<uint8_t>(two_bits(block + 16, i));
}
inline float q2_k_scale(const std::byte* block, int64_t g) {
  return half_at(block, 80) * static_cast<float>(byte_at(block, g) & 15);
}
inline float q2_k_zero(const std::byte* block, int64_t g) {
  return half_at(block, 82) * static_cast<float>(byte_at(block, g) >> 4);
}

// Groups of 16; the third bits come first and count downwards: without one an element is four less.
// Scales have six bits: four of group g in byte g % 8, two in byte 8 + g % 4.
inline uint8_t q3_k(const std::byte* block, int64_t i) {
  return as_element(static_cast<int>(two_bits(block + 32, i) | one_bit(block, i) << 2) - 4);
}
inline float q3_k_scale(const std::byte* block, int64_t g) {
  const std::byte* six = block + 96;
  const unsigned low = byte_at(six, g % 8) >> (g / 8 * 4) & 15;
  const unsigned high = byte_at(six, 8 + g % 4) >> (g / 4 * 2) & 3;
  return signed_scale(half_at(block, 108), low | high << 4);
}

// Groups of 32; scales and minima of 6 bits, of which groups 4 to 7 have their upper bits apart.
inline uint8_t q4_k(const std::byte* block, int64_t i) {
  return static_cast<uint8_t>(four_bits(block + 16, i));
}
inline float q4_k_scale(const std::byte* block, int64_t g) {
  const std::byte* six = block + 4;
  const unsigned code =
      g < 4 ? byte_at(six, g) & 63 : (byte_at(six, g + 4) & 15) | byte_at(six, g - 4) >> 6 << 4;
  return half_at(block, 0) * static_cast<float>(code);
}
inline float q4_k_zero(const std::byte* block, int64_t g) {
  const std::byte* six = block + 4;
  const unsigned code =
      g < 4 ? byte_at(six, g + 4) & 63 : byte_at(six, g + 4) >> 4 | byte_at(six, g) >> 6 << 4;
  return half_at(block, 2) * static_cast<float>(code);
}

// The scales and minima of Q4_K, and a fifth bit of each element.
inline uint8_t q5_k(const std::byte* block, int64_t i) {
  return static_cast<uint8_t>(four_bits(block + 48, i) | one_bit(block + 16, i) << 4);
}

// Groups of 16; four lower bits, then two upper ones, in two halves of 128.
inline uint8_t q6_k(const std::byte* block, int64_t i) {
  const int64_t half = i / 128, quarter = i % 128 / 32, l = i % 32;
  const unsigned low = byte_at(block, half * 64 + quarter % 2 * 32 + l) >> (quarter / 2 * 4) & 15;
  return as_element(static_cast<int>(low | two_bits(block + 128, i) << 4) - 32);
}
inline float q6_k_scale(const std::byte* block, int64_t g) {
  return half_at(block, 208) * static_cast<float>(static_cast<int8_t>(block[192 + g]));
}

// A float32 scale of all 256; the sums behind the elements follow from them.
inline uint8_t q8_k(const std::byte* block, int64_t i) {
  return static_cast<uint8_t>(byte_at(block, 4 + i));
}
inline float q8_k_scale(const std::byte* block, int64_t) {
  float scale = 0;
  std::memcpy(&scale, block, sizeof scale);
  return scale;
}

// Groups of 32 in the layout of IQ4_NL. Scales have six bits: two of each group first, then four.
inline uint8_t iq4_xs(const std::byte* block, int64_t i) {
  return as_element(kUneven[nibble(block + 8 + i / 32 * 16, i % 32)]);
}
inline float iq4_xs_scale(const std::byte* block, int64_t g) {
  const unsigned low = byte_at(block, 4 + g / 2) >> (g % 2 * 4) & 15;
  const unsigned high = byte_at(block, 2 + g / 4) >> (g % 4 * 2) & 3;
  return signed_scale(half_at(block, 0), low | high << 4);
}

}  // namespace skiff::model::gguf_blocks

// ops/latent_row.h -- a latent vector (Mla) in a cache of 8 bits: a row of bytes for each token, in
// the layout of FlashMLA's fp8 cache.
//
// A row has the kv_rank elements of the latent as e4m3, a float scale for each kLatentGroup of
// them, and the rope_dim elements of the rotated key as bf16, which are not quantized. 512 + 64
// elements take 656 bytes.
//
// A scale is the least power of two that is not below amax / 448, amax being the largest magnitude
// of its group, in float32 with a true division, clipped to [2^-64, 2^7]. Elements are x / scale,
// rounded to nearest even and clipped to [-448, 448]; what is not a number is stored as -448. An
// element's value is scale * element, which is exact in bf16, since the scale is a power of two: so
// attention over such rows is attention over a bf16 cache with these values, bit for bit where a
// backend computes both alike. All backends store the same bits for the same numbers.
#pragma once
#include <cstddef>
#include <span>

#include "ops/batch.h"

namespace skiff {

constexpr int kLatentGroup = 128;

// The places of a row's parts, in bytes from its beginning, which is a multiple of 16.
struct LatentRow {
  int rank, rope;  // elements, from 1 on

  constexpr int groups() const { return (rank + kLatentGroup - 1) / kLatentGroup; }
  constexpr int scales_at() const { return (rank + 3) / 4 * 4; }
  constexpr int rope_at() const { return scales_at() + 4 * groups(); }
  constexpr int bytes() const { return (rope_at() + 2 * rope + 15) / 16 * 16; }
};

// The row at place `in_page` of a page of KvLayer::k, u8 [num_pages, page_size, 1, bytes()].
std::byte* latent_row(const Tensor& pages, int64_t page, int64_t in_page);

// x [rank + rope], the normalized latent and then the rotated key. Padding bytes become zeros.
void quantize_latent(const LatentRow& shape, std::span<const float> x, std::byte* row);
void dequantize_latent(const LatentRow& shape, const std::byte* row, std::span<float> x);

}  // namespace skiff

// ops/cuda/attention/quantized_chunks.cuh -- 16 bytes of a position's head in a quantized cache,
// and the bf16 values that they stand for.
#pragma once
#include "ops/cuda/attention/quantized.cuh"

namespace skiff::cuda {

// One half of the cache, seen by one kv head.
template <KvElement kElement>
struct HeadCache {
  const uint8_t* elements;
  const uint16_t* scales;
  int64_t page, row, scale_page;  // bytes from page to page and position to position; numbers
  int per_position;               // scales of a position; 0: fixed

  __device__ HeadCache(const CacheArgs& c, int head, const void* data, const uint16_t* all,
                       int64_t page_elements, int64_t scale_page) {
    constexpr int kBits = kElementBits<kElement>;
    elements = static_cast<const uint8_t*>(data) + head * c.head_dim * kBits / 8;
    page = page_elements * kBits / 8;
    row = static_cast<int64_t>(c.kv_heads) * c.head_dim * kBits / 8;
    scales = all + (c.scales == 0 ? head : static_cast<int64_t>(head) * c.page_size * c.scales);
    this->scale_page = c.scales == 0 ? 0 : scale_page;
    per_position = c.scales;
  }
};

// 16 bytes of a head and the scale of their elements.
struct Chunk {
  uint4 words;
  uint32_t scale;
};

template <KvElement kElement>
__device__ __forceinline__ Chunk load_chunk(const HeadCache<kElement>& from, int64_t page,
                                            int in_page, int chunk) {
  Chunk c;
  c.words = __ldg(reinterpret_cast<const uint4*>(from.elements + page * from.page +
                                                 in_page * from.row + chunk * 16));
  const uint16_t* scales = from.scales + page * from.scale_page + in_page * from.per_position;
  if constexpr (kElement == KvElement::kU4)
    c.scale = __ldg(reinterpret_cast<const uint32_t*>(scales) + chunk);  // a chunk is a group
  else
    c.scale = __ldg(scales);
  return c;
}

// The elements of a chunk as bf16 in their order, 16 bytes at a time: f(piece, bytes).
template <KvElement kElement, class F>
__device__ __forceinline__ void widen(const Chunk& c, F f) {
  const PairScale by = pair_scale<kElement>(c.scale, c.scale);
  const uint32_t word[4] = {c.words.x, c.words.y, c.words.z, c.words.w};
  if constexpr (kElement == KvElement::kU4) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      uint32_t pair[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) pair[n] = nibbles(word[w], n, by);
      f(w,
        make_uint4(__byte_perm(pair[0], pair[1], 0x5410), __byte_perm(pair[2], pair[3], 0x5410),
                   __byte_perm(pair[0], pair[1], 0x7632), __byte_perm(pair[2], pair[3], 0x7632)));
    }
  } else {
#pragma unroll
    for (int w = 0; w < 4; w += 2) {
      const uint32_t a = __byte_perm(word[w], 0, 0x3120), b = __byte_perm(word[w + 1], 0, 0x3120);
      f(w / 2, make_uint4(even_bytes<kElement>(a, by), odd_bytes<kElement>(a, by),
                          even_bytes<kElement>(b, by), odd_bytes<kElement>(b, by)));
    }
  }
}

}  // namespace skiff::cuda

// ops/cpu/isa/attend_body.h -- attention over one block of context, for any vector type. Include
// after gemm_body.h and rows_body.h.
#pragma once
#include "ops/cpu/isa/kernels.h"

namespace skiff::cpu {
namespace {

constexpr int kChunk = 64;  // elements of a quantized row that are converted at a time

inline float bf16_value(uint16_t bits) {
  const uint32_t u = static_cast<uint32_t>(bits) << 16;
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

// out[i] = element i * scale, rounded to bf16; `read` turns kW bytes into floats.
template <F (*Read)(const uint8_t*)>
void scale_elements(float* out, const uint8_t* elements, float scale, int n) {
  int i = 0;
  for (; i + kW <= n; i += kW) store(out + i, round_bf16(Read(elements + i) * set1(scale)));
  if (i == n) return;
  uint8_t rest[kW] = {};
  for (int j = i; j < n; ++j) rest[j - i] = elements[j];
  store_n(out + i, round_bf16(Read(rest) * set1(scale)), n - i);
}

// Does what dequantize() does, for a row of kLatent.
void dequantize_latent(float* out, const KvRows& rows, const uint8_t* row, int begin, int n) {
  const int end = begin + n < rows.v_dim ? begin + n : rows.v_dim;
  int at = begin;
  while (at < end) {
    const int group_end = (at / rows.group + 1) * rows.group;
    const int count = (group_end < end ? group_end : end) - at;
    float scale;
    memcpy(&scale, row + rows.scales_at + at / rows.group * int64_t{4}, sizeof scale);
    scale_elements<read_e4m3>(out + at - begin, row + at, scale, count);
    at += count;
  }
  if (at == begin + n) return;
  const auto* rope = reinterpret_cast<const uint16_t*>(row + rows.rope_at);
  bf16_to_f32(out + at - begin, rope + at - rows.v_dim, begin + n - at);
}

// Writes values [begin, begin + n) of a quantized row to `out` as floats. n <= kChunk; `begin` is a
// multiple of kChunk.
void dequantize(float* out, const KvRows& rows, const void* row, const uint16_t* scales, int begin,
                int n) {
  const auto* elements = static_cast<const uint8_t*>(row);
  if (rows.element == KvElement::kLatent) return dequantize_latent(out, rows, elements, begin, n);
  if (rows.element == KvElement::kI8)
    return scale_elements<read_i8>(out, elements + begin, bf16_value(*scales), n);
  if (rows.element == KvElement::kE4M3)
    return scale_elements<read_e4m3>(out, elements + begin, bf16_value(*scales), n);
  uint8_t pairs[kChunk];
  const uint8_t* from = elements + begin / 2;
  for (int64_t i = 0; i < n / 2; ++i) {
    pairs[2 * i] = from[i] & 15;
    pairs[2 * i + 1] = from[i] >> 4;
  }
  for (int at = 0; at < n; at += rows.group) {
    const uint16_t* group = scales + (begin + at) / rows.group * int64_t{2};
    const auto zero = static_cast<uint8_t>(bf16_value(group[1]));
    const int count = n - at < rows.group ? n - at : rows.group;
    for (int i = at; i < at + count; ++i) pairs[i] = static_cast<uint8_t>(pairs[i] - zero);
    scale_elements<read_i8>(out + at, pairs + at, bf16_value(group[0]), count);
  }
}

inline bool is_quantized(KvElement e) { return e != KvElement::kF32 && e != KvElement::kBf16; }

// Does what load_keys() does, for a quantized cache.
void load_quantized_keys(float* kt, const KvRows& rows, int j) {
  float values[kW][kChunk];
  const uint32_t* src[kW];
  for (int i = 0; i < kW; ++i) src[i] = reinterpret_cast<const uint32_t*>(values[i]);
  for (int begin = 0; begin < rows.dim; begin += kChunk) {
    const int n = rows.dim - begin < kChunk ? rows.dim - begin : kChunk;
    for (int i = 0; i < kW; ++i) {
      const int key = j + i < rows.keys ? j + i : 0;
      dequantize(values[i], rows, rows.k[key], rows.k_scale[key], begin, n);
    }
    transpose_rows(src, n, [&](int64_t d, F v) { store(kt + (begin + d) * kKvBlock + j, v); });
  }
}

// Stores kW keys from key j on as columns of kt. Absent keys repeat the first one: their scores are
// computed and discarded.
void load_keys(float* kt, const KvRows& rows, int j) {
  if (is_quantized(rows.element)) return load_quantized_keys(kt, rows, j);
  const uint32_t* src[kW];
  for (int i = 0; i < kW; ++i)
    src[i] = static_cast<const uint32_t*>(rows.k[j + i < rows.keys ? j + i : 0]);
  if (rows.element == KvElement::kF32) {
    transpose_rows(src, rows.dim, [&](int64_t d, F v) { store(kt + d * kKvBlock + j, v); });
    return;
  }
  transpose_rows(src, rows.dim / 2, [&](int64_t d, F v) {
    uint16_t pairs[2 * kW];
    memcpy(pairs, &v, sizeof v);
    const Pair p = load_pair(pairs);
    store(kt + 2 * d * kKvBlock + j, p.even);
    store(kt + (2 * d + 1) * kKvBlock + j, p.odd);
  });
  if (rows.dim % 2 == 0) return;
  for (int i = 0; i < kW; ++i)
    bf16_to_f32(kt + int64_t{rows.dim - 1} * kKvBlock + j + i,
                reinterpret_cast<const uint16_t*>(src[i]) + rows.dim - 1, 1);
}

// Prefetches rows [j, j + count) of `next`, which has `ahead` rows.
inline void fetch(const void* const* next, int ahead, int j, int count, int64_t bytes) {
  for (int i = j; i < j + count && i < ahead; ++i)
    for (int64_t at = 0; at < bytes; at += 64)
      __builtin_prefetch(static_cast<const char*>(next[i]) + at, 0, 2);
}

int64_t row_bytes(const KvRows& rows, int dim) {
  if (rows.element == KvElement::kF32) return int64_t{dim} * 4;
  if (rows.element == KvElement::kBf16) return int64_t{dim} * 2;
  if (rows.element == KvElement::kLatent) return rows.rope_at + (rows.dim - rows.v_dim) * 2;
  return rows.element == KvElement::kU4 ? dim / 2 : dim;
}

void load_value(float* out, const KvRows& rows, int j) {
  if (rows.element == KvElement::kF32)
    memcpy(out, rows.v[j], sizeof(float) * static_cast<size_t>(rows.v_dim));
  else if (rows.element == KvElement::kBf16)
    bf16_to_f32(out, static_cast<const uint16_t*>(rows.v[j]), rows.v_dim);
  else
    for (int d = 0; d < rows.v_dim; d += kChunk)
      dequantize(out + d, rows, rows.v[j], rows.v_scale[j], d,
                 rows.v_dim - d < kChunk ? rows.v_dim - d : kChunk);
}

void load_kv(float* kt, float* v, int64_t o_stride, const KvRows& rows) {
  const int64_t k_bytes = row_bytes(rows, rows.dim), v_bytes = row_bytes(rows, rows.v_dim);
  for (int j = 0; j < kKvBlock; j += kW) {
    fetch(rows.next_k, rows.ahead, j, kW, k_bytes);
    load_keys(kt, rows, j);
  }
  for (int j = 0; j < rows.keys; ++j) {
    fetch(rows.next_v, rows.ahead, j, 1, v_bytes);
    float* out = v + j * o_stride;
    load_value(out, rows, j);
    for (int64_t d = rows.v_dim; d < o_stride; ++d) out[d] = 0;
  }
}

// c[rows][cols] (+)= a[rows][k] * b[k][cols]
void product(const float* a, int64_t lda, const float* b, int64_t ldb, int rows, int64_t cols,
             int64_t k, float* c, int64_t ldc, bool add) {
  for_each_tile(cols, [&]<int V>(int64_t j) {
    for (int r = 0; r < rows; r += kTileRows)
      tile_f32<V>({a + r * lda, lda, b + j, ldb, kW, k, c + r * ldc + j, ldc, add}, rows - r);
  });
}

// Turns scores into weights in place; updates the row's running maximum, sum and values.
void softmax_row(const AttendBlock& b, int r) {
  constexpr int kVecs = kKvBlock / kW;
  float* s = b.scores + int64_t{r} * kKvBlock;
  const F low = set1(-__builtin_inff());
  const F begin = set1(static_cast<float>(b.begin[r])), end = set1(static_cast<float>(b.end[r]));
  float lanes[kW];
  for (int i = 0; i < kW; ++i) lanes[i] = static_cast<float>(i);
  F index = load(lanes), top = low;
  for (int64_t v = 0; v < kVecs; ++v, index = index + set1(kW)) {
    const F x = select_range(load(s + v * kW) * set1(b.scale), index, begin, end, low);
    top = max(x, top);
    store(s + v * kW, x);
  }
  const float block_max = max_lanes(top);
  const float new_max = block_max > b.max[r] ? block_max : b.max[r];
  F sum = set1(0);
  for (int64_t v = 0; v < kVecs; ++v) {
    const F p = exp_of(load(s + v * kW) - set1(new_max));
    sum = sum + p;
    store(s + v * kW, p);
  }
  if (new_max != b.max[r]) {
    float keep;
    store_n(&keep, exp_of(set1(b.max[r] - new_max)), 1);
    float* o = b.o + r * b.o_stride;
    for (int64_t d = 0; d < b.o_stride; d += kW) store(o + d, load(o + d) * set1(keep));
    b.sum[r] *= keep;
    b.max[r] = new_max;
  }
  b.sum[r] += sum_lanes(sum);
}

void attend(const AttendBlock& b) {
  product(b.q, b.q_stride, b.kt, kKvBlock, b.rows, kKvBlock, b.dim, b.scores, kKvBlock, false);
  for (int r = 0; r < b.rows; ++r) softmax_row(b, r);
  product(b.scores, kKvBlock, b.v, b.o_stride, b.rows, b.o_stride, b.keys, b.o, b.o_stride, true);
}

}  // namespace
}  // namespace skiff::cpu

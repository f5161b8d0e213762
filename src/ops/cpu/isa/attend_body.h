// ops/cpu/isa/attend_body.h -- attention over one block of context, for any vector type. Include
// after gemm_body.h and rows_body.h.
#pragma once
#include "ops/cpu/isa/kernels.h"

namespace skiff::cpu {
namespace {

// Stores kW keys from key j on as columns of kt. Absent keys repeat the first one: their scores are
// computed and discarded.
void load_keys(float* kt, const KvRows& rows, int j) {
  const uint32_t* src[kW];
  for (int i = 0; i < kW; ++i)
    src[i] = static_cast<const uint32_t*>(rows.k[j + i < rows.keys ? j + i : 0]);
  if (!rows.bf16) {
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
    bf16_to_f32(kt + (rows.dim - 1) * kKvBlock + j + i,
                reinterpret_cast<const uint16_t*>(src[i]) + rows.dim - 1, 1);
}

// Prefetches rows [j, j + count) of `next`, which has `ahead` rows.
inline void fetch(const void* const* next, int ahead, int j, int count, int64_t bytes) {
  for (int i = j; i < j + count && i < ahead; ++i)
    for (int64_t at = 0; at < bytes; at += 64)
      __builtin_prefetch(static_cast<const char*>(next[i]) + at, 0, 2);
}

void load_kv(float* kt, float* v, int64_t o_stride, const KvRows& rows) {
  const int64_t bytes = rows.dim * (rows.bf16 ? 2 : 4);
  for (int j = 0; j < kKvBlock; j += kW) {
    fetch(rows.next_k, rows.ahead, j, kW, bytes);
    load_keys(kt, rows, j);
  }
  for (int j = 0; j < rows.keys; ++j) {
    fetch(rows.next_v, rows.ahead, j, 1, bytes);
    float* out = v + j * o_stride;
    if (rows.bf16)
      bf16_to_f32(out, static_cast<const uint16_t*>(rows.v[j]), rows.dim);
    else
      memcpy(out, rows.v[j], sizeof(float) * static_cast<size_t>(rows.dim));
    for (int64_t d = rows.dim; d < o_stride; ++d) out[d] = 0;
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
  float* s = b.scores + r * kKvBlock;
  const F low = set1(-__builtin_inff());
  const F begin = set1(static_cast<float>(b.begin[r])), end = set1(static_cast<float>(b.end[r]));
  float lanes[kW];
  for (int i = 0; i < kW; ++i) lanes[i] = static_cast<float>(i);
  F index = load(lanes), top = low;
  for (int v = 0; v < kVecs; ++v, index = index + set1(kW)) {
    const F x = select_range(load(s + v * kW) * set1(b.scale), index, begin, end, low);
    top = max(x, top);
    store(s + v * kW, x);
  }
  const float block_max = max_lanes(top);
  const float new_max = block_max > b.max[r] ? block_max : b.max[r];
  F sum = set1(0);
  for (int v = 0; v < kVecs; ++v) {
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

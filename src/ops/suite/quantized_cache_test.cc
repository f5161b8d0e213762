// gqa_store and gqa_attend where the cache is quantized: the stored bits against the rule's
// formulas (ops/kv_quant.h), attention against float64 on the values that the stored elements stand
// for.
#include <algorithm>

#include "ops/kv_quant.h"
#include "ops/suite/attention.h"

namespace skiff::suite {
namespace {

const KvFormat kFormats[] = {kv_format(DType::kI8),
                             kv_format(DType::kF8E4M3),
                             kv_format(DType::kU4),
                             {.dtype = DType::kI8, .fixed = true},
                             {.dtype = DType::kF8E4M3, .fixed = true}};

struct Stored {
  std::vector<uint8_t> bytes;
  std::vector<double> scales;
};

double nearest_even(double x) { return std::nearbyint(x); }

float clipped(float x, double low, double high) {
  return static_cast<float>(std::clamp(static_cast<double>(x), low, high));
}

// The code of the e4m3 number nearest to x; of two, the even one. |x| <= 448.
uint8_t nearest_e4m3(float x) {
  const double size = std::abs(static_cast<double>(x));
  const int exponent = size < 0x1p-6 ? -6 : std::ilogb(size);
  const double units = nearest_even(std::ldexp(size, 3 - exponent));  // 8 to 16, or less
  // A carry into the next exponent is one more in the code, too.
  const int code = (exponent + 6) * 8 + static_cast<int>(units);
  return static_cast<uint8_t>(code | (std::signbit(x) ? 0x80 : 0));
}

void expect_group(const std::vector<float>& x, size_t begin, size_t end, Stored& out) {
  float low = 0, high = 0;
  for (size_t i = begin; i < end; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  const auto scale =
      static_cast<float>(rounded(clipped((high - low) / 15, 0x1p-64, 0x1p64), DType::kBF16));
  const double zero = nearest_even(clipped(-low / scale, 0, 15));
  out.scales.insert(out.scales.end(), {scale, zero});
  for (size_t i = begin; i < end; ++i) {
    const double q = std::clamp(nearest_even(clipped(x[i] / scale, -16, 16)) + zero, 0.0, 15.0);
    if (i % 2 == 0)
      out.bytes.push_back(static_cast<uint8_t>(q));
    else
      out.bytes.back() = static_cast<uint8_t>(out.bytes.back() | static_cast<int>(q) << 4);
  }
}

// What a head becomes; `fixed` is its scale if that is not made from x.
Stored expected(const KvFormat& format, const std::vector<float>& x, double fixed) {
  Stored out;
  if (format.dtype == DType::kU4) {
    for (size_t i = 0; i < x.size(); i += 32) expect_group(x, i, std::min(i + 32, x.size()), out);
    return out;
  }
  const bool i8 = format.dtype == DType::kI8;
  const float most = i8 ? 127 : 448;
  float amax = 0;
  for (const float v : x) amax = std::max(amax, std::abs(v));
  const double scale =
      format.fixed ? fixed
                   : rounded(clipped(amax / most, 0x1p-64, i8 ? 0x1p64 : 0x1p7), DType::kBF16);
  out.scales = {scale};
  for (const float v : x) {
    const float q = clipped(v / static_cast<float>(scale), -most, most);
    out.bytes.push_back(i8 ? static_cast<uint8_t>(static_cast<int8_t>(nearest_even(q)))
                           : nearest_e4m3(q));
  }
  return out;
}

// Rows whose heads are hard to round: zeros, one large element, ties, tiny and huge magnitudes.
void make_adversarial(const Tensor& qkv, const Gqa& spec) {
  const int first = spec.heads * spec.head_dim;
  for (int64_t r = 0; r < qkv.rows(); ++r)
    for (int c = 0; c < 2 * spec.kv_heads * spec.head_dim; ++c) {
      const double x = at(qkv, r, first + c);
      switch (r % 8) {
        case 1:
          put(qkv, r, first + c, 0);
          break;
        case 2:
          put(qkv, r, first + c, c % spec.head_dim == 3 ? 1000 : x);
          break;
        case 3:
          put(qkv, r, first + c, c % spec.head_dim == 0 ? 127 : std::floor(x * 20) + 0.5);
          break;
        case 4:
          put(qkv, r, first + c, x * 1e-30);
          break;
        case 5:
          put(qkv, r, first + c, x * 1e25);
          break;
        case 6:
          put(qkv, r, first + c, std::abs(x) + 3);
          break;
        default:
          break;
      }
    }
}

void expect_stored(const Tensor& qkv, int64_t r, const Gqa& spec, const Paged& paged) {
  const int position = paged.batch.positions.as<int32_t>()[r], seq = paged.seq_of(r);
  for (int h = 0; h < 2 * spec.kv_heads; ++h) {
    const bool key = h < spec.kv_heads;
    const int head = key ? h : h - spec.kv_heads;
    std::vector<float> x(static_cast<size_t>(spec.head_dim));
    for (int i = 0; i < spec.head_dim; ++i)
      x[static_cast<size_t>(i)] =
          static_cast<float>(at(qkv, r, (spec.heads + h) * spec.head_dim + i));
    const Tensor scales =
        paged.scale_row(key ? paged.kv.k_scale : paged.kv.v_scale, seq, position, head);
    const Stored want = expected(paged.kv.format, x, at(scales, 0, 0));
    for (size_t i = 0; i < want.scales.size(); ++i)
      ASSERT_EQ(at(scales, 0, static_cast<int64_t>(i)), want.scales[i])
          << "row " << r << " head " << h << " scale " << i;
    const Tensor bytes = paged.cache_row(key ? paged.kv.k : paged.kv.v, seq, position);
    for (size_t i = 0; i < want.bytes.size(); ++i)
      ASSERT_EQ(int{bytes.as<uint8_t>()[static_cast<size_t>(head) * want.bytes.size() + i]},
                int{want.bytes[i]})
          << "row " << r << " head " << h << " byte " << i << " of " << x[i];
  }
}

void store_case(Ops& ops, const Gqa& spec, const KvFormat& cache, DType act, Pool pool) {
  SCOPED_TRACE(fmt::format("heads {}/{} dim {} act {} cache {} pool {}", spec.heads, spec.kv_heads,
                           spec.head_dim, name(act), describe(cache), static_cast<int>(pool)));
  Workspace ws(static_cast<uint64_t>(spec.head_dim * 100 + spec.heads));
  Paged paged(ws, spec, cache, 16, kMixed, pool);
  const int64_t cols = int64_t{spec.heads + 2 * spec.kv_heads} * spec.head_dim;
  const Tensor qkv = ws.random(act, {paged.batch.num_tokens, cols}, 2);
  make_adversarial(qkv, spec);
  std::vector<Tensor> writable = paged.written_rows();
  writable.push_back(qkv);
  ws.begin_op(writable);
  ops.begin_step(paged.batch, {});
  ops.gqa_store(qkv, {}, {}, spec, paged.batch, paged.kv);
  ws.end_op();
  for (int64_t r = 0; r < qkv.rows(); ++r)
    ASSERT_NO_FATAL_FAILURE(expect_stored(qkv, r, spec, paged));
}

// Slots hold other rows before, as after a rejected draft: what is stored must not depend on them.
TEST_P(OpSuite, StoreQuantizesByTheRule) {
  for (const KvFormat& cache : kFormats)
    for (const DType act : {DType::kF32, DType::kBF16}) {
      for (const int dim : {8, 64, 80, 128, 256})
        store_case(*ops, gqa(4, 2, dim), cache, act, Pool::kBlocks);
      store_case(*ops, gqa(3, 1, 10), cache, act, Pool::kApart);
      store_case(*ops, gqa(2, 2, 128, 0, 64, true), cache, act, Pool::kPadded);
      store_case(*ops, gqa(4, 4, 34, 0, 16), cache, act, Pool::kApart);
    }
}

TEST_P(OpSuite, ProjectQuantizesAsStoreDoes) {
  for (const KvFormat& cache : kFormats) {
    const Gqa spec = gqa(4, 2, 64);
    const int64_t in = 72, cols = 512;
    for (const std::vector<Piece>& pieces : {kMixed, {{3, 1}}, {{0, 600}}}) {
      SCOPED_TRACE(fmt::format("cache {} pieces {}", describe(cache), pieces.size()));
      Workspace ws(7);
      Paged paged(ws, spec, cache, 64, pieces);
      const Tensor x = ws.random(DType::kBF16, {paged.batch.num_tokens, in});
      Linear plain{.weight = ws.random(DType::kBF16, {cols, in}), .bias = {}};
      plain.bias = ws.random(DType::kF32, {cols}, 4);
      Buffer owner;
      const Linear w = ops->prepare(plain, {DType::kBF16}, &owner);
      const Tensor qkv = ws.output(DType::kBF16, {paged.batch.num_tokens, cols});
      std::vector<Tensor> writable = paged.written_rows();
      writable.push_back(qkv);
      ws.begin_op(writable);
      ops->begin_step(paged.batch, {});
      ops->gqa_project(qkv, x, w, {}, {}, spec, paged.batch, paged.kv);
      ws.end_op();
      for (int64_t r = 0; r < qkv.rows(); ++r)
        ASSERT_NO_FATAL_FAILURE(expect_stored(qkv, r, spec, paged));
    }
  }
}

TEST_P(OpSuite, AttendOverQuantizedCaches) {
  for (const KvFormat& cache : kFormats)
    for (const DType act : {DType::kF32, DType::kBF16}) {
      for (const int dim : {8, 34, 64, 80, 128, 256})
        attend_case(*ops, {gqa(4, 2, dim), act, cache, 64, kMixed, 24});
      for (const Pool pool : {Pool::kApart, Pool::kPadded})
        attend_case(*ops, {gqa(3, 1, 64, 33), act, cache, 16, kMixed, 24, pool});
      attend_case(*ops, {gqa(8, 1, 10), act, cache, 1, {{20, 3}, {0, 2}}});
    }
}

// The shape classes of a device's fast kernels: decodes, checks and chunks of every head size, with
// contexts at the edges of tiles and pages.
TEST_P(OpSuite, AttendOverQuantizedCachesInFastShapes) {
  const bool device = ops->device() != Device{};
  const std::vector<Piece> decode = {{0, 1},   {62, 1},  {63, 1},   {64, 1}, {130, 0},
                                     {255, 1}, {100, 3}, {1000, 4}, {0, 2},  {2900, 1}};
  const std::vector<Piece> chunks = {{0, 1},     {0, 300}, {400, 200}, {64, 64}, {63, 130},
                                     {1700, 67}, {700, 1}, {0, 128},   {0, 129}};
  for (const KvFormat& cache : kFormats)
    for (const int dim : {64, 128, 256}) {
      // The host has one kernel for all, and fixed scales differ in little.
      if ((!device || cache.fixed) && dim != 128) continue;
      attend_case(*ops, {gqa(8, 2, dim), DType::kBF16, cache, 64, decode, 6});
      if (!device) continue;
      attend_case(*ops, {gqa(8, 2, dim), DType::kBF16, cache, 64, chunks, 6});
      attend_case(*ops, {gqa(5, 1, dim, 100), DType::kBF16, cache, 16, decode, 6, Pool::kApart});
      attend_case(*ops, {gqa(6, 2, dim, 600), DType::kBF16, cache, 32, chunks, 6});
      attend_case(*ops, {gqa(32, 2, dim), DType::kBF16, cache, 128, chunks, 6, Pool::kPadded});
    }
}

TEST_P(OpSuite, QuantizedAttentionDoesNotDependOnCutsOrderOrPages) {
  if (!ops->batch_invariant()) GTEST_SKIP() << "this backend promises less";
  const std::vector<Cut> cuts = {{.chunks = {1}},
                                 {.chunks = {7, 1, 31, 2, 64}},
                                 {.chunks = {1000}, .reversed = true, .page_seed = 9},
                                 {.chunks = {100, 1}, .reversed = true}};
  for (const KvFormat& cache : kFormats) {
    if (cache.fixed) continue;  // these scales are random for each cut
    for (const DType act : {DType::kF32, DType::kBF16})
      expect_cuts_alike(*ops, gqa(4, 2, 32), act, cache, {70, 1, 133, 16}, cuts);
    expect_cuts_alike(*ops, gqa(8, 1, 64, 50), DType::kBF16, cache, {70, 1, 133, 300}, cuts);
  }
}

}  // namespace
}  // namespace skiff::suite

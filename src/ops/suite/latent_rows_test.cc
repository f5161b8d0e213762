// mla_store and mla_attend where the cache has 8-bit rows (ops/latent_row.h): the stored bytes
// against the rule's formulas, and attention against attention over a bf16 cache of the values that
// the rows stand for, which is judged by the formula elsewhere.
#include <algorithm>
#include <cstring>

#include "ops/suite/latent.h"

namespace skiff::suite {
namespace {

// The code of the e4m3 number nearest to x; of two, the even one. |x| <= 448.
uint8_t nearest_e4m3(double x) {
  const int exponent = std::abs(x) < 0x1p-6 ? -6 : std::ilogb(x);
  const double units = std::nearbyint(std::ldexp(std::abs(x), 3 - exponent));  // up to 16
  // A carry into the next exponent is one more in the code, too.
  return static_cast<uint8_t>((exponent + 6) * 8 + static_cast<int>(units) +
                              (std::signbit(x) ? 0x80 : 0));
}

std::vector<std::byte> expected_row(const LatentRow& row, const std::vector<float>& x) {
  std::vector<std::byte> out(static_cast<size_t>(row.bytes()));
  for (int g = 0; g < row.groups(); ++g) {
    const int begin = g * 128, end = std::min(begin + 128, row.rank);
    float amax = 0;
    for (int d = begin; d < end; ++d) amax = std::max(amax, std::abs(x[static_cast<size_t>(d)]));
    float scale = 0x1p-64f;
    while (scale < amax / 448 && scale < 0x1p7f) scale *= 2;
    std::memcpy(out.data() + row.scales_at() + ptrdiff_t{4} * g, &scale, 4);
    for (int d = begin; d < end; ++d) {
      const double q = x[static_cast<size_t>(d)] / static_cast<double>(scale);
      out[static_cast<size_t>(d)] = std::byte{nearest_e4m3(std::clamp(q, -448.0, 448.0))};
    }
  }
  for (int i = 0; i < row.rope; ++i) {
    const BF16 value = to_bf16(x.end()[i - row.rope]);
    std::memcpy(out.data() + row.rope_at() + ptrdiff_t{2} * i, &value, 2);
  }
  return out;
}

TEST(LatentRow, IsTheLayoutOfFlashMla) {
  constexpr LatentRow kRow = {512, 64};
  static_assert(kRow.groups() == 4 && kRow.scales_at() == 512);
  static_assert(kRow.rope_at() == 528 && kRow.bytes() == 656);
  static_assert(LatentRow{20, 8}.bytes() == 48 && LatentRow{131, 6}.scales_at() == 132);
}

// The error is half a unit of three bits of mantissa, or, below 2^-6 scales, half of 2^-9 scales,
// which are at most amax / 224; no normal number here is beyond 6.
TEST(LatentRow, KeepsFourBits) {
  constexpr LatentRow kRow = {300, 4};
  Rng rng(3);
  std::vector<float> x(304), y(304);
  std::vector<std::byte> bytes(static_cast<size_t>(kRow.bytes()));
  for (const float size : {1e-12f, 1.0f, 1e4f}) {
    for (float& v : x) v = static_cast<float>(rng.normal()) * size;
    quantize_latent(kRow, x, bytes.data());
    EXPECT_EQ(bytes, expected_row(kRow, x));
    dequantize_latent(kRow, bytes.data(), y);
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(y[i], x[i], std::max(std::abs(x[i]) / 16, size * 0x1p-15f)) << i;
  }
  // What is not a number becomes the lowest, infinities and what lies beyond the largest scale the
  // largest one.
  std::ranges::fill(x, 1.0f);
  x[0] = std::nanf(""), x[1] = 1e9f, x[2] = -INFINITY;
  quantize_latent(kRow, x, bytes.data());
  dequantize_latent(kRow, bytes.data(), y);
  EXPECT_EQ(y[0], -448 * 128);
  EXPECT_EQ(y[1], 448 * 128);
  EXPECT_EQ(y[2], -448 * 128);
  EXPECT_EQ(y[3], 1);
  EXPECT_EQ(y[200], 1);
}

// The same rows go to a cache of f32, which rounds nothing, and to one of rows.
void store_case(Ops& ops, const Mla& spec, DType act, int64_t gap) {
  SCOPED_TRACE(
      fmt::format("rank {}, rope {}, {}, gap {}", spec.kv_rank, spec.rope_dim, name(act), gap));
  Workspace ws(static_cast<uint64_t>(spec.kv_rank + spec.heads));
  Paged paged(ws, cached(spec), DType::kF32, 64, kMixed);
  const KvLayer rows = make_rows(ws, paged, spec, gap);
  const int64_t tokens = paged.batch.num_tokens, q_cols = int64_t{spec.heads} * spec.q_dim();
  const Tensor q = ws.random(act, {tokens, q_cols}), turned = ws.output(act, {tokens, q_cols});
  const Tensor kv = ws.random(DType::kF32, {tokens, spec.cached_dim()}, 3);
  const Norm norm{.weight = ws.random(DType::kF32, {spec.kv_rank}), .eps = 1e-6f};
  // Rows that are hard to round: zeros, one large element, tiny and huge magnitudes.
  for (int64_t r = 0; r < tokens; ++r)
    for (int d = 0; d < spec.cached_dim(); ++d) {
      if (r % 5 == 1) put(kv, r, d, 0);
      if (r % 5 == 2 && d % 128 == 3) put(kv, r, d, 900);
      if (r % 5 == 3) put(kv, r, d, std::ldexp(at(kv, r, d), d % 40 - 20));
    }
  for (int d = 0; d < spec.kv_rank; ++d)
    put(norm.weight, 0, d, std::ldexp(at(norm.weight, 0, d), d / 100 * 7 - 9));
  const auto where = [&](int64_t r) {
    const int position = paged.batch.positions.as<int32_t>()[r];
    const int64_t page = paged.batch.pages.row<int32_t>(paged.seq_of(r))[position / 64];
    return std::pair{page, int64_t{position % 64}};
  };
  std::vector<Tensor> writable = {q};
  for (int64_t r = 0; r < tokens; ++r) {
    const auto [page, i] = where(r);
    const int64_t bytes = rows.k.dim[3];
    writable.push_back(rows.k.row_range(page, 1).col_range(i * bytes, bytes));
  }
  convert(turned, q);
  ops.begin_step(paged.batch, {});
  ops.mla_store(turned, kv, norm, spec, paged.batch, latents(paged));
  ops.wait(ops.mark());
  ws.begin_op(writable);
  ops.begin_step(paged.batch, {});
  ops.mla_store(q, kv, norm, spec, paged.batch, rows);
  ws.end_op();
  const LatentRow row = {spec.kv_rank, spec.rope_dim};
  for (int64_t r = 0; r < tokens; ++r) {
    EXPECT_EQ(row_bytes(q, r), row_bytes(turned, r));
    const auto [page, i] = where(r);
    std::vector<float> x(static_cast<size_t>(spec.cached_dim()));
    for (int d = 0; d < spec.cached_dim(); ++d)
      x[static_cast<size_t>(d)] =
          static_cast<float>(at(paged.kv.k, page, i * spec.cached_dim() + d));
    const std::vector<std::byte> want = expected_row(row, x);
    const std::byte* got = latent_row(rows.k, page, i);
    for (size_t b = 0; b < want.size(); ++b)
      ASSERT_EQ(int(got[b]), int(want[b])) << "row " << r << ", byte " << b;
  }
}

TEST_P(OpSuite, MlaStoresRowsByTheRule) {
  for (const DType act : {DType::kF32, DType::kBF16}) {
    store_case(*ops, mla(4, 20, 8), act, 0);
    store_case(*ops, mla(3, 131, 6, 8, false), act, 16);
    store_case(*ops, deepseek(16), act, 0);
  }
  store_case(*ops, mla(2, 1000, 16), DType::kBF16, 48);
}

struct RowsCase {
  Mla spec;
  DType act;
  int page_size;
  std::vector<Piece> pieces;
  int64_t gap = 0;
};

// Attention over rows gives what attention over their values in bf16 gives, bit for bit.
void attend_case(Ops& ops, const RowsCase& c) {
  SCOPED_TRACE(fmt::format("{} heads, rank {}, rope {}, {}, pages of {}, {} sequences, gap {}",
                           c.spec.heads, c.spec.kv_rank, c.spec.rope_dim, name(c.act), c.page_size,
                           c.pieces.size(), c.gap));
  Workspace ws(static_cast<uint64_t>(c.spec.kv_rank * 7 + c.spec.heads));
  Paged paged(ws, cached(c.spec), DType::kBF16, c.page_size, c.pieces, Pool::kApart);
  const KvLayer rows = make_rows(ws, paged, c.spec, c.gap);
  const int64_t vectors = int64_t{paged.batch.num_tokens} * c.spec.heads;
  const Tensor q = ws.random(c.act, {vectors, c.spec.q_dim()});
  const Tensor q_rope = q.col_range(c.spec.nope_dim, c.spec.rope_dim);
  const Tensor q_latent = ws.random(c.act, {vectors, c.spec.kv_rank});
  const Tensor want = ws.output(c.act, {vectors, c.spec.kv_rank});
  const Tensor out = ws.output(c.act, {vectors, c.spec.kv_rank});
  ops.begin_step(paged.batch, {});
  ops.mla_attend(want, q_latent, q_rope, c.spec, paged.batch, latents(paged));
  ops.wait(ops.mark());
  ws.begin_op({out});
  ops.begin_step(paged.batch, {});
  ops.mla_attend(out, q_latent, q_rope, c.spec, paged.batch, rows);
  ws.end_op();
  for (int64_t v = 0; v < vectors; ++v) {
    for (int64_t i = 0; i < out.cols(); ++i) ASSERT_FALSE(std::isnan(at(out, v, i))) << v;
    ASSERT_EQ(row_bytes(out, v), row_bytes(want, v)) << "vector " << v << " of " << vectors;
  }
}

TEST_P(OpSuite, AttendOverRowsIsAttendOverTheirValues) {
  for (const DType act : {DType::kF32, DType::kBF16}) {
    attend_case(*ops, {mla(4, 20, 8), act, 64, kMixed});
    attend_case(*ops, {mla(3, 131, 6), act, 16, kMixed, 16});
    attend_case(*ops, {mla(2, 64, 16), act, 32, {{1500, 3}, {500, 40}, {1023, 2}, {0, 1}}});
    attend_case(*ops, {mla(5, 100, 32), act, 1, {{20, 3}, {0, 2}}});
    // A device's kernels for this shape add in another order (LatentShapes.RowsOfEightBits).
    if (ops->device() == Device{} || act == DType::kF32)
      attend_case(*ops, {deepseek(4), act, 64, {{70, 1}, {5, 3}, {0, 9}}});
  }
}

// Bytes past the context are any: NaN as scales, as elements and as rotated keys.
TEST_P(OpSuite, NothingPastTheContextOfRows) {
  for (const auto& [heads, length] :
       {std::pair{16, 1}, {16, 17}, {32, 63}, {16, 65}, {64, 17}, {32, 200}, {128, 130}}) {
    const Mla spec = deepseek(heads);
    Workspace ws(static_cast<uint64_t>(length));
    Paged paged(ws, cached(spec), DType::kBF16, 64, {{length - 1, 1}}, Pool::kApart);
    const KvLayer rows = make_rows(ws, paged, spec);
    const auto page = paged.batch.pages.row<int32_t>(0)[(length - 1) / 64];
    const Tensor q = ws.random(DType::kBF16, {heads, spec.q_dim()});
    const Tensor q_rope = q.col_range(spec.nope_dim, spec.rope_dim);
    const Tensor q_latent = ws.random(DType::kBF16, {heads, spec.kv_rank});
    const Tensor want = ws.output(DType::kBF16, {heads, spec.kv_rank});
    const Tensor out = ws.output(DType::kBF16, {heads, spec.kv_rank});
    const auto attend_past = [&](const Tensor& to, int bytes) {
      for (int64_t i = (length - 1) % 64 + 1; i < 64; ++i)
        std::memset(latent_row(rows.k, page, i), bytes, static_cast<size_t>(rows.k.dim[3]));
      ops->begin_step(paged.batch, {});
      ops->mla_attend(to, q_latent, q_rope, spec, paged.batch, rows);
      finish();
    };
    attend_past(want, 0);
    attend_past(out, 0xff);
    for (int64_t v = 0; v < heads; ++v)
      for (int64_t i = 0; i < out.cols(); ++i) ASSERT_FALSE(std::isnan(at(out, v, i))) << v;
    EXPECT_EQ(all_bytes(out), all_bytes(want)) << heads << " heads, context of " << length;
  }
}

}  // namespace
}  // namespace skiff::suite

#include "model/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "model/model_testing.h"
#include "ops/kv_quant.h"

namespace skiff::model {
namespace {

constexpr int kBlockSize = 5;

ModelSpec spec() { return testing::TestModel("LlamaForCausalLM").config().spec; }  // [2][k|v]

// The bytes of one page of a layer's keys, values or scales.
std::span<std::byte> page_of(const Tensor& pages, int64_t page) {
  auto* data =
      static_cast<std::byte*>(pages.data) + byte_size(pages.dtype, page * pages.row_stride);
  return {data, byte_size(pages.dtype, pages.cols())};
}

std::vector<Tensor> halves(const KvCache& cache) {
  std::vector<Tensor> all;
  for (const KvLayer& layer : cache.layers()) {
    all.insert(all.end(), {layer.k, layer.v});
    if (layer.k_scale) all.insert(all.end(), {layer.k_scale, layer.v_scale});
  }
  return all;
}

// In memory: block 0 with keys and values of all layers, then block 1, without overlap.
TEST(KvCacheTest, ABlockIsOnePiece) {
  const KvCache cache(spec(), 3, kBlockSize, {.dtype = DType::kBF16}, Device{});
  ASSERT_EQ(cache.layers().size(), 2u);
  const size_t block = KvCache::bytes_per_block(spec(), kBlockSize, {.dtype = DType::kBF16});
  const std::byte* begin = page_of(cache.layers()[0].k, 0).data();
  const std::byte* end = begin;
  for (int64_t b = 0; b < 3; ++b) {
    EXPECT_EQ(page_of(cache.layers()[0].k, b).data(), begin + static_cast<size_t>(b) * block);
    for (const Tensor& t : halves(cache)) {
      EXPECT_EQ(t.dim, (std::array<int64_t, 4>{3, kBlockSize, 2, 4}));
      const std::span<std::byte> page = page_of(t, b);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(page.data()) % kTensorAlign, 0u);
      EXPECT_GE(page.data(), end);
      end = page.data() + page.size();
    }
    EXPECT_LE(end, begin + static_cast<size_t>(b + 1) * block);
  }
  for (const KvLayer& layer : cache.layers()) EXPECT_EQ(layer.page_size, kBlockSize);
}

// Heads of the model have 4 elements, a layer 2: scales follow the values, on cache lines of their
// own.
TEST(KvCacheTest, ScalesLieInTheBlock) {
  const struct {
    DType dtype;
    size_t half, scales;  // bytes of a page of 64 positions
    int64_t numbers;
  } cases[] = {{DType::kI8, 512, 256, 1}, {DType::kF8E4M3, 512, 256, 1}, {DType::kU4, 256, 512, 2}};
  for (const auto& c : cases) {
    const KvFormat format = kv_format(c.dtype);
    const KvCache cache(spec(), 3, 64, format, Device{});
    EXPECT_EQ(KvCache::bytes_per_block(spec(), 64, format), 4 * (c.half + c.scales));
    EXPECT_EQ(kv_token_bytes(spec(), format) * 64, 4 * static_cast<double>(c.half + c.scales));
    const std::byte* begin = page_of(cache.layers()[0].k, 0).data();
    size_t at = 0;
    for (const KvLayer& layer : cache.layers()) {
      EXPECT_EQ(layer.format, format);
      EXPECT_EQ(layer.k.dim, (std::array<int64_t, 4>{3, 64, 2, 4}));
      EXPECT_EQ(layer.k_scale.dim, (std::array<int64_t, 4>{3, 2, 64, c.numbers}));
      for (const Tensor& t : {layer.k, layer.v, layer.k_scale, layer.v_scale}) {
        EXPECT_EQ(page_of(t, 0).data() - begin, at);
        EXPECT_EQ(page_of(t, 2).data() - begin, at + 8 * (c.half + c.scales));
        at += page_of(t, 0).size();
      }
    }
  }
}

// One tensor for each layer, whose values are a part of the keys.
TEST(KvCacheTest, LatentsHaveNoValuesApart) {
  ModelSpec latents;
  latents.layers.assign(3,
                        {.mixer = Mla{.heads = 4, .kv_rank = 20, .rope_dim = 8}, .ffn = Dense{}});
  const size_t layer = size_t{64} * 28 * 2,
               block = 3 * layer;  // a layer's page is whole cache lines
  EXPECT_EQ(KvCache::bytes_per_block(latents, 64, {.dtype = DType::kBF16}), block);
  EXPECT_EQ(kv_token_bytes(latents, {.dtype = DType::kBF16}), 3 * 28 * 2);
  const KvCache cache(latents, 4, 64, {.dtype = DType::kBF16}, Device{});
  const std::byte* begin = page_of(cache.layers()[0].k, 0).data();
  for (size_t i = 0; i < 3; ++i) {
    const KvLayer& made = cache.layers()[i];
    EXPECT_FALSE(made.v);
    EXPECT_EQ(made.k.dim, (std::array<int64_t, 4>{4, 64, 1, 28}));
    EXPECT_EQ(page_of(made.k, 2).data() - begin, static_cast<ptrdiff_t>(2 * block + i * layer));
  }
}

// In 8 bits the scales are in the rows; DeepSeek's take 656 bytes.
TEST(KvCacheTest, LatentsAreRowsIn8Bits) {
  const KvFormat format = kv_format(DType::kF8E4M3);
  ModelSpec latents;
  latents.layers.assign(2,
                        {.mixer = Mla{.heads = 4, .kv_rank = 512, .rope_dim = 64}, .ffn = Dense{}});
  EXPECT_EQ(KvCache::bytes_per_block(latents, 64, format), size_t{2} * 64 * 656);
  EXPECT_EQ(kv_token_bytes(latents, format), 2 * 656);
  const KvCache cache(latents, 3, 64, format, Device{});
  const std::byte* begin = page_of(cache.layers()[0].k, 0).data();
  for (size_t i = 0; i < 2; ++i) {
    const KvLayer& made = cache.layers()[i];
    EXPECT_FALSE(made.v || made.k_scale || made.v_scale);
    EXPECT_EQ(made.format, format);
    EXPECT_EQ(made.k.dtype, DType::kU8);
    EXPECT_EQ(made.k.dim, (std::array<int64_t, 4>{3, 64, 1, 656}));
    EXPECT_EQ(page_of(made.k, 2).data() - begin, static_cast<ptrdiff_t>((4 + i) * 64 * 656));
  }
  // A page of an odd number of rows is filled up to whole cache lines.
  EXPECT_EQ(KvCache::bytes_per_block(latents, 5, format), size_t{2} * 3328);
}

class HostBlocksOf : public ::testing::TestWithParam<DType> {};

TEST_P(HostBlocksOf, ABlockComesBackWhereItIsPutAndNowhereElse) {
  const KvFormat format = kv_format(GetParam());
  const KvCache cache(spec(), 4, kBlockSize, format, Device{});
  const HostBlocks host(spec(), 2, kBlockSize, format);
  const auto ops = make_reference_ops();
  EXPECT_EQ(host.block_bytes(), KvCache::bytes_per_block(spec(), kBlockSize, format));
  std::mt19937 rng(1);
  std::vector<std::vector<std::byte>> before;  // [half][block]
  for (const Tensor& t : halves(cache))
    for (int64_t b = 0; b < 4; ++b) {
      for (std::byte& byte : page_of(t, b)) byte = static_cast<std::byte>(rng());
      before.emplace_back(page_of(t, b).begin(), page_of(t, b).end());
    }
  host.save(*ops, cache.layers(), 2, 1);
  const Arrival loaded = host.load(cache.layers(), 1, 0);
  ops->copy(loaded.to, loaded.from);
  size_t i = 0;
  for (const Tensor& t : halves(cache)) {
    EXPECT_TRUE(std::ranges::equal(page_of(t, 0), before[i + 2]));
    for (size_t b = 1; b < 4; ++b)
      EXPECT_TRUE(std::ranges::equal(page_of(t, static_cast<int64_t>(b)), before[i + b]));
    i += 4;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, HostBlocksOf,
                         ::testing::Values(DType::kBF16, DType::kI8, DType::kU4),
                         [](const auto& info) { return std::string(name(info.param)); });

// Files of the cache hold what host memory holds: keys, then values, of each layer in turn, and
// nothing between them where a half is a whole number of cache lines.
TEST(HostBlocksTest, TheLayoutIsThatOfFiles) {
  const int block_size = 64;
  const KvCache cache(spec(), 2, block_size, {.dtype = DType::kF32}, Device{});
  const HostBlocks host(spec(), 1, block_size, {.dtype = DType::kF32});
  const auto ops = make_reference_ops();
  std::mt19937 rng(2);
  std::vector<std::byte> want;
  for (const Tensor& t : halves(cache)) {
    for (std::byte& byte : page_of(t, 1)) byte = static_cast<std::byte>(rng());
    want.insert(want.end(), page_of(t, 1).begin(), page_of(t, 1).end());
  }
  host.save(*ops, cache.layers(), 1, 0);
  EXPECT_TRUE(std::ranges::equal(host.block(0), want));
}

}  // namespace
}  // namespace skiff::model

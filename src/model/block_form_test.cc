#include "model/block_form.h"

#include <gtest/gtest.h>

#include <vector>

#include "arch/cost.h"
#include "arch/shard.h"
#include "base/random.h"
#include "model/kv_cache.h"
#include "ops/kv_quant.h"

namespace skiff::model {
namespace {

constexpr int kBlockSize = 6;

ModelSpec heads_of(int kv_heads) {
  ModelSpec spec;
  spec.hidden = 64;
  spec.vocab = 64;
  spec.layers.assign(3, {.mixer = Gqa{.heads = 8, .kv_heads = kv_heads, .head_dim = 16},
                         .ffn = Dense{.width = 64}});
  return spec;
}

ModelSpec latents() {
  ModelSpec spec = heads_of(1);
  spec.layers.assign(
      2, {.mixer = Mla{.heads = 8, .kv_rank = 256, .rope_dim = 16}, .ffn = Dense{.width = 64}});
  return spec;
}

// A byte that tells where it belongs: a function of the layer, of keys or values, of the token, the
// head of the whole model, and the place within the head.
std::byte mark(uint64_t layer, uint64_t half, int64_t token, int64_t head, size_t at) {
  return static_cast<std::byte>(
      mix64((((layer * 4 + half) * 1000 + static_cast<uint64_t>(token)) * 100 +
             static_cast<uint64_t>(head)) *
                1000 +
            at));
}

// Marks what is in the only block of a cache. Elements are [token][head], scales [head][token].
void fill(const KvCache& cache, int64_t first_head) {
  for (uint64_t layer = 0; layer < cache.layers().size(); ++layer) {
    const KvLayer& kv = cache.layers()[layer];
    const Tensor* parts[] = {&kv.k, &kv.v, &kv.k_scale, &kv.v_scale};
    for (uint64_t part = 0; part < 4; ++part) {
      if (!*parts[part]) continue;
      const auto& dim = parts[part]->dim;
      const bool scales = part >= 2;
      const size_t each = byte_size(parts[part]->dtype, dim[3]);
      auto* to = static_cast<std::byte*>(parts[part]->data);
      for (int64_t i = 0; i < dim[1]; ++i)
        for (int64_t j = 0; j < dim[2]; ++j)
          for (size_t at = 0; at < each; ++at)
            *to++ = mark(layer, part, scales ? j : i, first_head + (scales ? i : j), at);
    }
  }
}

std::vector<std::byte> bytes_of(const ModelSpec& spec, int64_t first_head, const KvFormat& format) {
  const KvCache cache(spec, 1, kBlockSize, format, Device{});
  const size_t size = KvCache::bytes_per_block(spec, kBlockSize, format);
  auto* begin = static_cast<std::byte*>(cache.layers().front().k.data);
  std::fill_n(begin, size, std::byte{0});
  fill(cache, first_head);
  return {begin, begin + size};
}

class BlockFormOf : public ::testing::TestWithParam<DType> {};

// What a group of any size has in its blocks becomes what one rank has, and the other way round.
TEST_P(BlockFormOf, EveryHeadComesWhereItBelongs) {
  const KvFormat format = kv_format(GetParam());
  for (const int kv_heads : {1, 2, 4, 8})
    for (const int ranks : {1, 2, 4, 8}) {
      const ModelSpec spec = heads_of(kv_heads);
      const BlockForm form(spec, *shard(spec, 0, ranks), ranks, kBlockSize, format);
      const std::vector<std::byte> whole = bytes_of(spec, 0, format);
      std::vector<std::byte> grouped;
      for (int rank = 0; rank < ranks; ++rank) {
        const int64_t first = share_of(kv_heads, rank, ranks).first;
        const auto part = bytes_of(*shard(spec, rank, ranks), first, format);
        grouped.insert(grouped.end(), part.begin(), part.end());
      }
      ASSERT_EQ(form.whole_bytes(), whole.size());
      ASSERT_EQ(form.grouped_bytes(), grouped.size());
      EXPECT_EQ(form.same(), ranks == 1);
      std::vector<std::byte> joined(whole.size()), cut(grouped.size());
      form.join(grouped, joined);
      form.cut(whole, cut);
      EXPECT_EQ(joined, whole) << kv_heads << " heads, " << ranks << " ranks";
      EXPECT_EQ(cut, grouped) << kv_heads << " heads, " << ranks << " ranks";
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, BlockFormOf,
                         ::testing::Values(DType::kF32, DType::kBF16, DType::kI8, DType::kU4),
                         [](const auto& info) { return std::string(name(info.param)); });

class LatentFormOf : public ::testing::TestWithParam<DType> {};

TEST_P(LatentFormOf, LatentsAreTheSameInEveryRank) {
  const KvFormat format = kv_format(GetParam());
  const BlockForm form(latents(), *shard(latents(), 0, 4), 4, kBlockSize, format);
  const std::vector<std::byte> whole = bytes_of(latents(), 0, format);
  std::vector<std::byte> cut(form.grouped_bytes()), joined(whole.size());
  ASSERT_EQ(cut.size(), 4 * whole.size());
  form.cut(whole, cut);
  for (size_t at = 0; at < cut.size(); at += whole.size())
    EXPECT_TRUE(std::equal(whole.begin(), whole.end(), cut.begin() + static_cast<ptrdiff_t>(at)));
  form.join(cut, joined);
  EXPECT_EQ(joined, whole);
}

INSTANTIATE_TEST_SUITE_P(Formats, LatentFormOf, ::testing::Values(DType::kBF16, DType::kF8E4M3),
                         [](const auto& info) { return std::string(name(info.param)); });

// A model's layers are cut, a drafter's behind them is not.
TEST(BlockForm, ADrafterMayBeWholeInEveryRank) {
  const KvFormat format{.dtype = DType::kBF16};
  const ModelSpec drafter = heads_of(2);
  const auto with = [&](ModelSpec spec) {
    spec.layers.insert(spec.layers.end(), drafter.layers.begin(), drafter.layers.end());
    return spec;
  };
  const ModelSpec model = heads_of(4), local = *shard(model, 0, 2);
  const BlockForm form(with(model), with(local), 2, kBlockSize, format);
  const size_t own = KvCache::bytes_per_block(local, kBlockSize, format);
  const size_t drafts = KvCache::bytes_per_block(drafter, kBlockSize, format);
  ASSERT_EQ(form.grouped_bytes(), 2 * (own + drafts));
  ASSERT_EQ(form.whole_bytes(), KvCache::bytes_per_block(model, kBlockSize, format) + drafts);
  std::vector<std::byte> whole(form.whole_bytes()), grouped(form.grouped_bytes());
  std::vector<std::byte> again(whole.size());
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<std::byte>(mix64(i));
  const auto back = static_cast<ptrdiff_t>(drafts);
  form.cut(whole, grouped);
  for (const size_t rank : {0, 1})
    EXPECT_TRUE(std::equal(whole.end() - back, whole.end(),
                           grouped.begin() + static_cast<ptrdiff_t>(rank * (own + drafts) + own)));
  form.join(grouped, again);
  EXPECT_TRUE(std::equal(again.end() - back, again.end(), whole.end() - back));
}

}  // namespace
}  // namespace skiff::model

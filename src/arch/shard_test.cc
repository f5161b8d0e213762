#include "arch/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace skiff {
namespace {

using testing::HasSubstr;

ModelSpec dense_model(int heads, int kv_heads, int width, int vocab) {
  ModelSpec spec{.arch = "test", .hidden = 256, .vocab = vocab, .max_context = 100};
  const Gqa mixer{.heads = heads,
                  .kv_heads = kv_heads,
                  .head_dim = 16,
                  .qkv_bias = true,
                  .out_bias = true,
                  .qk_norm = true,
                  .window = 9};
  spec.layers.assign(2, {.mixer = mixer, .ffn = Dense{.width = width}});
  return spec;
}

Gqa mixer_of(const ModelSpec& spec) { return std::get<Gqa>(spec.layers.back().mixer); }

ModelSpec local(const ModelSpec& spec, int rank, int size) {
  auto part = shard(spec, rank, size);
  EXPECT_TRUE(part) << part.error().what;
  return *part;
}

std::string refusal(const ModelSpec& spec, int size) {
  const auto part = shard(spec, 0, size);
  EXPECT_FALSE(part);
  return part ? "" : part.error().what;
}

TEST(Shard, OneRankHasEverything) {
  const ModelSpec odd = dense_model(7, 7, 13, 97), whole = local(odd, 0, 1);
  EXPECT_EQ(whole.vocab, 97);
  EXPECT_EQ(mixer_of(whole).heads, 7);
  EXPECT_TRUE(mixer_of(whole).out_bias);
  EXPECT_EQ(std::get<Dense>(whole.layers[0].ffn).width, 13);
}

TEST(Shard, HeadsWidthAndVocabularyAreCut) {
  const ModelSpec spec = dense_model(32, 8, 11008, 32000);
  for (const int size : {2, 4, 8}) {
    for (int rank = 0; rank < size; ++rank) {
      const ModelSpec part = local(spec, rank, size);
      const Gqa m = mixer_of(part);
      EXPECT_EQ(m.heads, 32 / size);
      EXPECT_EQ(m.kv_heads, 8 / size);
      EXPECT_EQ(std::get<Dense>(part.layers[1].ffn).width, 11008 / size);
      EXPECT_EQ(part.vocab, 32000 / size);
      EXPECT_EQ(m.out_bias, rank == 0) << "it is added once";
      EXPECT_TRUE(m.qkv_bias && m.qk_norm);
      EXPECT_EQ(m.window, 9);
      EXPECT_EQ(m.head_dim, 16);
      EXPECT_EQ(part.hidden, 256);
      EXPECT_EQ(part.layers.size(), 2u);
    }
  }
}

TEST(Shard, FewKeyAndValueHeadsAreReplicated) {
  const ModelSpec spec = dense_model(16, 2, 64, 64);
  for (int rank = 0; rank < 8; ++rank) {
    const Gqa m = mixer_of(local(spec, rank, 8));
    EXPECT_EQ(m.heads, 2);
    EXPECT_EQ(m.kv_heads, 1);
    // The rank's query heads belong to the key head that it has.
    const int first_query = share_of(16, rank, 8).first;
    EXPECT_EQ(share_of(2, rank, 8), (Share{.first = first_query / (16 / 2), .count = 1}));
  }
}

TEST(Shard, ExpertsAreCutByWidthAndTheRouterIsNot) {
  ModelSpec spec = dense_model(20, 4, 12288, 103424);
  const Router router{.experts = 64, .top_k = 6, .bias = true, .always = 2};
  spec.layers[1].ffn = Moe{.router = router, .width = 1536, .shared_width = 768};
  const ModelSpec part = local(spec, 3, 4);
  EXPECT_EQ(std::get<Dense>(part.layers[0].ffn).width, 3072);
  const Moe& moe = std::get<Moe>(part.layers[1].ffn);
  EXPECT_EQ(moe.width, 384);
  EXPECT_EQ(moe.shared_width, 192);
  EXPECT_EQ(moe.router.experts, 64);
  EXPECT_EQ(moe.router.always, 2);
  EXPECT_EQ(moe.router.top_k, 6);
}

// Each thing belongs to somebody, in order; none to two ranks unless there are more ranks.
TEST(Shard, SharesCoverAll) {
  for (const int size : {1, 2, 3, 4, 6, 8, 12}) {
    for (const int total : {1, 2, 3, 4, 6, 8, 12, 24, 120}) {
      if (total % size != 0 && size % total != 0) continue;
      std::multiset<int> seen;
      int last = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Share share = share_of(total, rank, size);
        EXPECT_GE(share.first, last);
        last = share.first;
        for (int i = 0; i < share.count; ++i) seen.insert(share.first + i);
      }
      for (int i = 0; i < total; ++i)
        EXPECT_EQ(seen.count(i), static_cast<size_t>(std::max(1, size / total)));
      EXPECT_EQ(std::ssize(seen), std::max(size, total));
    }
  }
}

TEST(Shard, RefusalsNameTheNumberAndTheSizesThatFit) {
  EXPECT_EQ(refusal(dense_model(20, 4, 1536, 103424), 3),
            "the 20 query heads of layer 0 cannot be shared out among 3 ranks; sizes that fit this "
            "model: 1, 2, 4");
  EXPECT_THAT(refusal(dense_model(24, 6, 96, 96), 4), HasSubstr("the 6 key and value heads"));
  EXPECT_THAT(refusal(dense_model(24, 6, 96, 96), 4), HasSubstr("model: 1, 2, 3, 6, 12, 24"));
  EXPECT_THAT(refusal(dense_model(8, 8, 100, 96), 8),
              HasSubstr("the 100 columns of the feed-forward width of layer 0"));
  EXPECT_THAT(refusal(dense_model(8, 8, 64, 97), 2), HasSubstr("the 97 rows of the vocabulary"));
  EXPECT_THAT(refusal(dense_model(7, 7, 14, 98), 2), HasSubstr("sizes that fit this model: 1, 7"));
  ModelSpec spec = dense_model(8, 8, 64, 64);
  spec.layers[1].ffn = Moe{.router = {.experts = 4, .top_k = 2}, .width = 20};
  EXPECT_THAT(refusal(spec, 8), HasSubstr("the 20 columns of the experts' width of layer 1"));
  spec.layers[1].ffn = Moe{.router = {.experts = 4, .top_k = 2}, .width = 32, .shared_width = 12};
  EXPECT_THAT(refusal(spec, 8), HasSubstr("the 12 columns of the shared expert's width"));
}

TEST(ShardDeathTest, ARankOutsideItsGroupIsABug) {
  EXPECT_DEATH((void)shard(dense_model(8, 8, 64, 64), 2, 2), "rank 2 of 2");
  EXPECT_DEATH((void)share_of(6, 0, 4), "6 among 4 ranks");
}

}  // namespace
}  // namespace skiff

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
      EXPECT_EQ(part.vocab, 32000) << "logits are gathered";
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

ModelSpec mixture(int experts, int width, int always = 0) {
  ModelSpec spec = dense_model(16, 16, 64, 64);
  const Router router{.experts = experts, .top_k = 2, .always = always};
  spec.layers[1].ffn = Moe{.router = router, .width = width};
  return spec;
}

Moe moe_of(const ModelSpec& spec) { return std::get<Moe>(spec.layers.back().ffn); }

TEST(Shard, ExpertsAreDealtOutWhole) {
  ModelSpec spec = mixture(10, 21);
  EXPECT_FALSE(deals_experts_whole(spec));
  deal_experts_whole(spec);
  EXPECT_TRUE(deals_experts_whole(spec));
  EXPECT_EQ(moe_of(local(spec, 0, 1)).router.here(), 10) << "one rank has all";
  const std::vector<std::pair<int, int>> shares = {{0, 3}, {3, 3}, {6, 2}, {8, 2}};
  for (int rank = 0; rank < 4; ++rank) {
    const auto [first, count] = shares[static_cast<size_t>(rank)];
    const ModelSpec part = local(spec, rank, 4);
    const Router router = moe_of(part).router;
    EXPECT_EQ(moe_of(part).width, 21);
    EXPECT_EQ(router.experts, 10) << "all have logits";
    EXPECT_EQ(router.before, first);
    EXPECT_EQ(router.here(), count);
    EXPECT_EQ(router.total(), count);
    EXPECT_EQ(router.per_token(), 2);
    for (int e = 0; e < 10; ++e)
      EXPECT_EQ(router.place_of(e), e >= first && e < first + count ? e - first : -1);
    EXPECT_EQ(mixer_of(part).heads, 4);
    EXPECT_EQ(std::get<Dense>(part.layers[0].ffn).width, 16);
  }
}

// Every token uses those that are always on, so all ranks share the work.
TEST(Shard, ExpertsAlwaysOnAreCutByWidthAllTheSame) {
  ModelSpec spec = mixture(4, 24, 3);
  deal_experts_whole(spec);
  EXPECT_EQ(moe_of(spec).router.always, 0);
  EXPECT_EQ(moe_of(spec).shared_width, 72);
  EXPECT_EQ(moe_of(local(spec, 1, 4)).shared_width, 18);
  EXPECT_EQ(moe_of(local(spec, 1, 4)).router.most_per_token(), 1);
  EXPECT_EQ(moe_of(local(spec, 1, 2)).router.most_per_token(), 2);
}

TEST(Shard, EachRankHasAnExpertAtLeast) {
  ModelSpec spec = mixture(4, 21);
  EXPECT_THAT(refusal(spec, 2), HasSubstr("the 21 columns of the experts' width of layer 1"));
  deal_experts_whole(spec);
  EXPECT_THAT(refusal(spec, 8), HasSubstr("the 4 experts of layer 1"));
  EXPECT_THAT(refusal(spec, 8), HasSubstr("sizes that fit this model: 1, 2, 4"));
}

TEST(Shard, BalancedSharesCoverAll) {
  for (const int size : {1, 2, 3, 7})
    for (const int total : {7, 8, 13, 256}) {
      int next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Share share = balanced_share_of(total, rank, size);
        EXPECT_EQ(share.first, next);
        EXPECT_GE(share.count, total / size);
        EXPECT_LE(share.count, total / size + 1);
        EXPECT_GE(balanced_share_of(total, 0, size).count, share.count);
        next += share.count;
      }
      EXPECT_EQ(next, total);
    }
}

TEST(Shard, LatentAttentionIsCutByHeads) {
  ModelSpec spec = dense_model(8, 8, 64, 64);
  const Mla whole{.heads = 16,
                  .q_rank = 24,
                  .kv_rank = 20,
                  .nope_dim = 12,
                  .rope_dim = 8,
                  .v_dim = 10,
                  .rope = {.dim = 8},
                  .scale = 0.5f};
  for (Layer& layer : spec.layers) layer.mixer = whole;
  const Mla part = std::get<Mla>(local(spec, 3, 8).layers[1].mixer);
  EXPECT_EQ(part.heads, 2);
  EXPECT_EQ(part.q_rank, 24);
  EXPECT_EQ(part.cached_dim(), 28);
  EXPECT_EQ(part.v_dim, 10);
  EXPECT_EQ(part.scale, 0.5f);
  EXPECT_THAT(refusal(spec, 3), HasSubstr("the 16 query heads of layer 0"));
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
  ModelSpec spec = dense_model(8, 8, 64, 97);
  spec.head = HeadKind::kClasses;
  EXPECT_TRUE(shard(spec, 0, 2)) << "a head of classes is whole on every rank";
  spec = dense_model(8, 8, 64, 64);
  spec.layers[1].ffn = Moe{.router = {.experts = 4, .top_k = 2}, .width = 20};
  EXPECT_THAT(refusal(spec, 8), HasSubstr("the 20 columns of the experts' width of layer 1"));
  spec.layers[1].ffn = Moe{.router = {.experts = 4, .top_k = 2}, .width = 32, .shared_width = 12};
  EXPECT_THAT(refusal(spec, 8), HasSubstr("the 12 columns of the shared expert's width"));
}

// Replicas have all of a layer but for some of its routed experts, each of which one of them has.
TEST(ShareExperts, RoutedExpertsAreSharedAndAllElseIsWhole) {
  ModelSpec spec = dense_model(8, 2, 96, 97);
  spec.layers[1].ffn =
      Moe{.router = {.experts = 5, .top_k = 2, .always = 1}, .width = 21, .shared_width = 0};
  deal_experts_whole(spec);
  int before = 0;
  for (int replica = 0; replica < 3; ++replica) {
    const ModelSpec local = *share_experts(spec, replica, 3);
    const auto& moe = std::get<Moe>(local.layers[1].ffn);
    EXPECT_EQ(moe.router.before, before);
    EXPECT_EQ(moe.router.here(), replica < 2 ? 2 : 1);
    EXPECT_EQ(moe.sharers, 3);
    EXPECT_EQ(moe.width, 21);
    EXPECT_EQ(moe.shared_width, 21) << "the expert that is always on";
    EXPECT_EQ(std::get<Gqa>(local.layers[1].mixer).heads, 8);
    EXPECT_EQ(std::get<Dense>(local.layers[0].ffn).width, 96);
    EXPECT_EQ(local.head_rows(), 97);
    before += moe.router.here();
  }
  EXPECT_EQ(before, 5);
  EXPECT_EQ(std::get<Moe>(share_experts(spec, 0, 1)->layers[1].ffn).sharers, 1);
  EXPECT_EQ(share_experts(spec, 0, 6).error().what, "layer 1 has 5 experts, fewer than 6 replicas");
}

TEST(ShareExperts, RanksOfReplicasHaveEachExpertOnceAndAPartOfAllElse) {
  ModelSpec spec = dense_model(8, 2, 96, 96);
  spec.layers[1].ffn = Moe{.router = {.experts = 7, .top_k = 2}, .width = 21, .shared_width = 20};
  deal_experts_whole(spec);
  std::multiset<int> seen;
  for (int rank = 0; rank < 2; ++rank)
    for (int replica = 0; replica < 3; ++replica) {
      const ModelSpec local = *share_experts(*shard(spec, rank, 2), replica, 3);
      const auto& moe = std::get<Moe>(local.layers[1].ffn);
      for (int expert = 0; expert < moe.router.here(); ++expert)
        seen.insert(moe.router.before + expert);
      EXPECT_GE(moe.router.here(), 1);
      EXPECT_LE(moe.router.here(), 2);
      EXPECT_EQ(moe.sharers, 3);
      EXPECT_EQ(moe.width, 21);
      EXPECT_EQ(moe.shared_width, 10);
      EXPECT_EQ(std::get<Gqa>(local.layers[1].mixer).heads, 4);
    }
  EXPECT_EQ(seen, (std::multiset<int>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(share_experts(*shard(spec, 1, 2), 0, 4).error().what,
            "layer 1 has 3 experts on a rank, fewer than 4 replicas");
}

TEST(ShardDeathTest, ARankOutsideItsGroupIsABug) {
  EXPECT_DEATH((void)shard(dense_model(8, 8, 64, 64), 2, 2), "rank 2 of 2");
  EXPECT_DEATH((void)share_of(6, 0, 4), "6 among 4 ranks");
}

}  // namespace
}  // namespace skiff

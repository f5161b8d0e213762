// Random pairs of a prefill and a decode instance against one that does both, bit for bit: what is
// computed where must show nowhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>

#include "engine/peers_testing.h"
#include "engine/resolve.h"

namespace skiff::engine {
namespace {

// Latents, experts, and a module behind the last layer.
constexpr const char* kLatents = R"({
  "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 32, "vocab_size": 97,
  "num_hidden_layers": 2, "intermediate_size": 48, "num_attention_heads": 4,
  "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 20, "qk_nope_head_dim": 12,
  "qk_rope_head_dim": 8, "v_head_dim": 10, "moe_intermediate_size": 20, "n_routed_experts": 4,
  "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
  "first_k_dense_replace": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
  "num_nextn_predict_layers": 1, "max_position_embeddings": 256, "torch_dtype": "float32"})";

class PeersPairs : public PeersTest {
 protected:
  using Rng = std::mt19937_64;
  static int below(Rng& rng, int n) { return static_cast<int>(rng() % static_cast<uint64_t>(n)); }

  // What all three instances have in common.
  EngineConfig random_config(Rng& rng) {
    EngineConfig config = mixed_;
    config.block_size = 4 << below(rng, 3);
    config.max_num_batched_tokens = 16 + below(rng, 80);
    config.max_num_seqs = 2 + below(rng, 8);
    config.num_blocks_override = 256 / config.block_size + below(rng, 40);
    config.swap_space_gb = below(rng, 2) * 1e-4;
    config.peers.shares_memory = below(rng, 2) == 0;
    return config;
  }
  // Some prompts begin alike, some are the same, and many end within a block.
  static NewSequence random_request(Rng& rng, SeqId id) {
    NewSequence s = request(id, 1 + below(rng, 150));
    if (below(rng, 2) == 0)
      for (size_t i = 0; i < s.prompt.size(); ++i) s.prompt[i] = static_cast<Token>(i * 5 % 97);
    if (below(rng, 3) == 0) s.prompt.back() = below(rng, 97);
    s.stop.max_tokens = 1 + below(rng, 12);
    s.cache.salt = below(rng, 4) == 0 ? "salt" : "";
    if (below(rng, 6) == 0) s.params.prompt_logprobs = 2;
    if (below(rng, 3) == 0)
      s.cache.extras = {{.begin = 0, .end = below(rng, 150), .identity = "image"}};
    return s;
  }
  struct Case {
    std::vector<NewSequence> requests;
    std::vector<Heard> right;
  };
  static Case random_case(Rng& rng, const EngineConfig& config, int requests) {
    Case c;
    Instance whole(config);
    for (int i = 0; i < requests; ++i) {
      c.requests.push_back(random_request(rng, static_cast<SeqId>(i) + 1));
      c.right.push_back(whole.result(c.requests.back()));
    }
    return c;
  }
  // Runs a case through a pair; some requests are cancelled. Returns how many began with one row.
  int run(Rng& rng, const Case& c, Instance& p, Instance& d) {
    std::vector<bool> cancelled;
    for (const NewSequence& s : c.requests) {
      d->submit(s);
      cancelled.push_back(below(rng, 8) == 0);
      if (cancelled.back()) d->cancel(s.id);
      if (below(rng, 3) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    int one_row = 0;
    for (size_t i = 0; i < c.requests.size(); ++i) {
      const Heard heard = d.await(c.requests[i].id);
      if (cancelled[i]) continue;
      expect_equal(heard, c.right[i]);
      one_row += heard.cached + 1 == static_cast<int>(c.requests[i].prompt.size());
    }
    for (Instance* one : {&p, &d})
      EXPECT_TRUE(one->comes_to([](const EngineStats& s) {
        return s.peers.leases == 0 && s.running == 0 && s.waiting == 0;
      }));
    if (std::ranges::count(cancelled, true) == 0) {
      came += d->stats().peers.blocks;
      failed += d->stats().tiers.failures;
    }
    return one_row;
  }
  static EngineConfig as(EngineConfig config, peer::Role role, int port = 0) {
    config.peers.role = role;
    if (port > 0) config.peers.prefills.push_back({"127.0.0.1", port});
    return config;
  }
  // Tells in which random case a check failed.
  void check_pairs(uint64_t seeds, const std::function<void(Rng&, EngineConfig&)>& change) {
    int one_row = 0;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      SCOPED_TRACE(seed);
      Rng rng(seed);
      EngineConfig config = random_config(rng);
      change(rng, config);
      const Case c = random_case(rng, config, 12);
      Instance p(as(config, peer::Role::kPrefill));
      Instance d(as(config, peer::Role::kDecode, p.port()));
      one_row += run(rng, c, p, d);
    }
    EXPECT_GT(one_row, static_cast<int>(3 * seeds)) << "prompts that began with their last token";
    EXPECT_LE(10 * failed, came) << "what depends on who came first is the exception";
  }
  // Blocks of the pairs in which nothing was cancelled.
  uint64_t came = 0, failed = 0;
};

TEST_F(PeersPairs, KeepTokens) {
  check_pairs(20, [](Rng&, EngineConfig&) {});
}

TEST_F(PeersPairs, KeepTokensOverAQuantizedCache) {
  check_pairs(9, [](Rng& rng, EngineConfig& config) {
    constexpr DType kTypes[] = {DType::kI8, DType::kF8E4M3, DType::kU4};
    config.kv_dtype = kTypes[below(rng, 3)];
  });
}

TEST_F(PeersPairs, KeepTokensOverLatents) {
  const DummyFolder folder("peers_latents", kLatents);
  check_pairs(6, [&](Rng& rng, EngineConfig& config) {
    config.model = folder.path();
    if (below(rng, 2) == 0) config.kv_dtype = DType::kF8E4M3;
  });
}

TEST_F(PeersPairs, KeepTokensOfRanks) {
  std::string even = kSmallLlama;
  even.replace(even.find("97"), 2, "98");  // a vocabulary that two ranks share out
  const DummyFolder folder("peers_ranks", even);
  check_pairs(3, [&](Rng&, EngineConfig& config) {
    config.model = folder.path();
    config.device = "cpu";
    config.tensor_parallel = 2;
  });
}

// A module drafts on both sides, over its own keys and values of the rows that come.
TEST_F(PeersPairs, KeepTokensWithDrafts) {
  const DummyFolder folder("peers_drafts", kLatents);
  check_pairs(6, [&](Rng&, EngineConfig& config) {
    config.model = folder.path();
    config.speculation = draft::Settings{.method = "mtp"};
  });
}

TEST_F(PeersPairs, ThePolicyIsThatOfTheRole) {
  for (const auto role : {peer::Role::kMixed, peer::Role::kPrefill, peer::Role::kDecode}) {
    const EngineConfig config = as(mixed_, role);
    const sched::Policy policy = resolve(config, read_model(config)).limits.policy;
    EXPECT_EQ(policy.max_large, role == peer::Role::kPrefill ? 1 : 0);
    EXPECT_EQ(policy.only_prompts, role == peer::Role::kPrefill);
  }
}

// Two sequences with one prompt, of which the second comes when everything is here.
TEST_F(PeersPairs, WhatCameIsFoundAgain) {
  Instance p(prefill()), d(decode({p.port()}));
  EXPECT_EQ(d.result(request(1)).cached, 149);
  const uint64_t blocks = d->stats().peers.blocks;
  NewSequence again = request(1);
  again.id = 2;
  EXPECT_EQ(d.result(again).cached, 149);
  NewSequence other = request(1);
  other.id = 3;
  other.prompt[147] = 5;  // within the last block, from which on it is another prompt
  EXPECT_EQ(d.result(other).cached, 144);
  EXPECT_EQ(d->stats().peers.blocks, blocks) << "less than a block is not asked for";
  EXPECT_EQ(d->stats().peers.prompts, 1u);
}

}  // namespace
}  // namespace skiff::engine

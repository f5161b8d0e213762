// Replicas on CUDA devices that share the experts of a mixture, in random schedules,
// batch-invariant: each request's tokens and log-probabilities are bit for bit those that it gets
// while all others are idle, whichever replica has it. Replicas have a device each where there are
// enough; else all are on the first one, which takes kernels that are loaded before any of them
// waits for another.
#include <numeric>

#include "base/load_error.h"
#include "engine/sharing_testing.h"
#include "tensor/device_memory.h"

namespace skiff::engine {
namespace {

constexpr Lengths kLengths = {.requests = 24, .shared = 200, .own = 200, .output = 20};
constexpr int kContext = 448;
constexpr int kBlock = 64;  // latent attention over pages of other sizes has a kernel of its own

constexpr const char* kErnie = R"({
  "architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe", "hidden_act": "silu",
  "hidden_size": 256, "intermediate_size": 512, "max_position_embeddings": 1024,
  "moe_intermediate_size": 192, "moe_k": 3, "moe_layer_start_index": 1, "moe_layer_end_index": 2,
  "moe_layer_interval": 1, "moe_norm_min": 1e-12, "moe_num_experts": 16,
  "moe_num_shared_experts": 2, "num_attention_heads": 4, "num_hidden_layers": 3,
  "num_key_value_heads": 1, "rms_norm_eps": 1e-05, "rope_theta": 5000.0, "use_bias": false,
  "tie_word_embeddings": false, "vocab_size": 1004, "torch_dtype": "bfloat16"})";

// Latent attention, and groups of experts.
constexpr const char* kDeepSeek = R"({
  "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_act": "silu",
  "hidden_size": 256, "intermediate_size": 512, "max_position_embeddings": 1024,
  "moe_intermediate_size": 128, "n_routed_experts": 16, "n_shared_experts": 1, "n_group": 2,
  "topk_group": 1, "num_experts_per_tok": 3, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
  "scoring_func": "sigmoid", "topk_method": "noaux_tc", "first_k_dense_replace": 1,
  "moe_layer_freq": 1, "q_lora_rank": 128, "kv_lora_rank": 512, "qk_nope_head_dim": 64,
  "qk_rope_head_dim": 64, "v_head_dim": 64, "num_attention_heads": 4, "num_key_value_heads": 4,
  "num_hidden_layers": 3, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "vocab_size": 1004, "torch_dtype": "bfloat16"})";

// Makes the replicas of a group on CUDA devices.
void put_on_devices(Sharing& group, const std::string& folder, int replicas) {
  std::vector<int> devices(static_cast<size_t>(replicas), 0);
  if (num_cuda_devices() >= replicas) std::iota(devices.begin(), devices.end(), 0);
  for (int i = 0; i < replicas; ++i)
    // A recording is bound to the memory of one executor, and each schedule has its own.
    group.models.push_back(
        Sharing::replica(folder, model::LoadFormat::kDummy, DType::kBF16, i, replicas,
                         make_cuda_ops({.device = devices[static_cast<size_t>(i)],
                                        .graphs = false,
                                        .batch_invariant = true})));
  group.on_devices.emplace(devices, /*owners_from=*/0);
  group.lockstep.emplace(group.on_devices->make_exchanges());
}

// How requests are computed one after the other.
Setup setup_alone() {
  Setup setup;
  setup.own_thread = false;
  setup.block_size = kBlock;
  setup.num_blocks = kContext / setup.block_size + 1;
  setup.limits = {.max_seqs = 1, .max_rows = 256, .max_context = kContext, .max_logit_rows = 256};
  return setup;
}

Setup random_shared_setup(std::mt19937_64& rng) {
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(rng() % static_cast<uint64_t>(high - low + 1));
  };
  Setup s;
  s.own_thread = false;
  s.block_size = kBlock;
  s.num_blocks = pick(kContext, 3 * kContext / 2) / s.block_size + 1;
  s.limits.max_seqs = pick(2, 8);
  s.limits.max_rows = pick(s.limits.max_seqs, rng() % 2 ? 40 : 300);
  s.limits.max_context = kContext;
  s.limits.max_logit_rows = s.limits.max_seqs + pick(0, 30);
  s.limits.chunked_prefill = rng() % 4 != 0;
  s.limits.policy.long_prompt = pick(4, 300);
  s.limits.policy.long_chunk = pick(0, 150);
  s.limits.policy.reserve = pick(0, 4);
  if (rng() % 4) s.captures.sizes = {(s.limits.max_seqs + 1) / 2, s.limits.max_seqs};
  if (rng() % 2) s.captures.drafts = pick(1, 3);
  s.share = rng() % 4 != 0;
  if (s.share && rng() % 3 == 0) s.tiers.host_blocks = pick(1, 3 * kContext / s.block_size);
  return s;
}

// Each set of requests runs in several schedules.
void check_schedules(Sharing& group, const char* name, int sets, const Lengths& lengths) {
  constexpr int kSchedules = 4;
  Totals totals;
  std::set<Token> said;
  for (int seed = 0; seed < sets; ++seed) {
    std::mt19937_64 rng(static_cast<uint64_t>(seed));
    const store::TempDir storage;
    const auto requests = random_requests(rng, group.models[0]->weights.spec.vocab, lengths);
    const Texts alone = group.texts_of(setup_alone(), requests, rng, storage);
    for (const auto& [id, heard] : alone) said.insert(heard.tokens.begin(), heard.tokens.end());
    for (int schedule = 0; schedule < kSchedules; ++schedule) {
      SCOPED_TRACE(testing::Message() << name << " seed " << seed << " schedule " << schedule);
      const Setup setup = random_shared_setup(rng);
      const Dealt dealt(requests, group.models.size(), rng);
      const auto commands = dealt.commands(/*cancels=*/0, rng);
      std::vector<Listener> heard(group.models.size());
      group.run_all(setup, commands, rng() % 2 ? &alone : nullptr, rng, storage, heard, totals);
      for (const auto& [id, text] : alone)
        ASSERT_NO_FATAL_FAILURE(expect_same(heard[dealt.replica_of.at(id)], {{id, text}}));
    }
  }
  std::printf("%d schedules, %ld steps\n", sets * kSchedules, totals.steps);
  print(name, totals, said.size());
  EXPECT_GT(totals.cached, 0u);
  EXPECT_GT(totals.kept, 0);
  EXPECT_GT(said.size(), 20u) << "the text must depend on the context";
}

void check_on_devices(const char* name, const char* config, int replicas, int sets) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  const DummyFolder folder(name, config);
  Sharing group;
  try {
    put_on_devices(group, folder.path(), replicas);
  } catch (const LoadError& e) {
    GTEST_SKIP() << "no batch-invariant devices: " << e.what();
  }
  if (num_cuda_devices() >= replicas)
    group.on_devices->begin_service();
  else
    std::printf("%d replicas on one device\n", replicas);
  check_schedules(group, name, sets, kLengths);
}

void check_on_host(const char* name, const char* config, int replicas, int sets) {
  const DummyFolder folder(name, config);
  Sharing group(folder.path(), model::LoadFormat::kDummy, DType::kBF16, replicas);
  check_schedules(group, name, sets, {.requests = 12, .shared = 120, .own = 120, .output = 12});
}

TEST(SharedExpertsAhead, Ernie) { check_on_host("ahead_ernie", kErnie, 3, 1); }
TEST(SharedExpertsAhead, DeepSeek) { check_on_host("ahead_deepseek", kDeepSeek, 2, 1); }

TEST(SharedExpertsOnDevices, ErnieInTwoReplicas) {
  check_on_devices("shared_ernie_2", kErnie, 2, 8);
}

TEST(SharedExpertsOnDevices, ErnieInThreeReplicas) {
  check_on_devices("shared_ernie_3", kErnie, 3, 4);
}

TEST(SharedExpertsOnDevices, DeepSeekInTwoReplicas) {
  check_on_devices("shared_deepseek_2", kDeepSeek, 2, 8);
}

TEST(SharedExpertsOnDevices, DeepSeekInFourReplicas) {
  check_on_devices("shared_deepseek_4", kDeepSeek, 4, 3);
}

}  // namespace
}  // namespace skiff::engine

// Replicas on CUDA devices that share the experts of a mixture, in random schedules,
// batch-invariant: each request's tokens and log-probabilities are bit for bit those that it gets
// while all others are idle, whichever replica has it, and whatever a module drafts for it.
// Replicas, or each of their ranks, have a device each where there are enough; else all are on the
// first one, which takes kernels that are loaded before any of them waits for another.
#include <limits>

#include "base/load_error.h"
#include "comm/devices/grid_testing.h"
#include "engine/llm.h"
#include "engine/sharing_testing.h"
#include "engine/six_requests_testing.h"
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
  "num_nextn_predict_layers": 1, "tie_word_embeddings": false, "vocab_size": 1004,
  "torch_dtype": "bfloat16"})";

// Latent attention, groups of experts, and a module with a mixture of its own.
constexpr const char* kDeepSeek = R"({
  "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_act": "silu",
  "hidden_size": 256, "intermediate_size": 512, "max_position_embeddings": 1024,
  "moe_intermediate_size": 128, "n_routed_experts": 16, "n_shared_experts": 1, "n_group": 2,
  "topk_group": 1, "num_experts_per_tok": 3, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
  "scoring_func": "sigmoid", "topk_method": "noaux_tc", "first_k_dense_replace": 1,
  "moe_layer_freq": 1, "q_lora_rank": 128, "kv_lora_rank": 512, "qk_nope_head_dim": 64,
  "qk_rope_head_dim": 64, "v_head_dim": 64, "num_attention_heads": 4, "num_key_value_heads": 4,
  "num_hidden_layers": 3, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
  "num_nextn_predict_layers": 1, "tie_word_embeddings": false, "vocab_size": 1004,
  "torch_dtype": "bfloat16"})";

// Its rows have 8 KB, so that a thousand of them and a few more do not fit a slot of a mailbox.
constexpr const char* kWideDeepSeek = R"({
  "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_act": "silu",
  "hidden_size": 4096, "intermediate_size": 1024, "max_position_embeddings": 2048,
  "moe_intermediate_size": 256, "n_routed_experts": 16, "n_shared_experts": 1, "n_group": 2,
  "topk_group": 1, "num_experts_per_tok": 3, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
  "scoring_func": "sigmoid", "topk_method": "noaux_tc", "first_k_dense_replace": 1,
  "moe_layer_freq": 1, "q_lora_rank": 128, "kv_lora_rank": 512, "qk_nope_head_dim": 64,
  "qk_rope_head_dim": 64, "v_head_dim": 64, "num_attention_heads": 4, "num_key_value_heads": 4,
  "num_hidden_layers": 3, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "vocab_size": 1004, "torch_dtype": "bfloat16"})";
constexpr int kWideRowBytes = 2 * 4096;

// Without shared experts, which would be apart in the served model only, and so other ones.
constexpr const char* kQwen = R"({
  "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 256, "vocab_size": 1004,
  "head_dim": 128, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 1, "max_position_embeddings": 1024, "num_experts": 16,
  "num_experts_per_tok": 3, "moe_intermediate_size": 192, "norm_topk_prob": true,
  "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "torch_dtype": "bfloat16"})";

// Replicas of so many ranks each.
struct Grid {
  int replicas = 2, ranks = 1;

  bool has_devices() const { return num_cuda_devices() >= replicas * ranks; }
  // Each rank has a device of its own where there are enough, in order.
  int device(int replica, int rank) const { return has_devices() ? replica * ranks + rank : 0; }
  std::vector<int> devices_of_replica(int replica) const {
    std::vector<int> devices(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank)
      devices[static_cast<size_t>(rank)] = device(replica, rank);
    return devices;
  }
  std::vector<int> devices_of_rank(int rank) const {
    std::vector<int> devices(static_cast<size_t>(replicas));
    for (int replica = 0; replica < replicas; ++replica)
      devices[static_cast<size_t>(replica)] = device(replica, rank);
    return devices;
  }
};

// Makes the replicas of a group on CUDA devices. Without recordings: one is bound to the memory of
// one executor, and each schedule has its own.
void put_on_devices(Sharing& group, const std::string& folder, const Grid& grid,
                    bool graphs = false, std::string_view quantization = {}) {
  // Sums of steps of a dozen rows and more are taken by owners of rows, others by all ranks.
  constexpr int64_t kOwnersFrom = 6 << 10;
  group.add_models(
      folder, model::LoadFormat::kDummy, DType::kBF16,
      {.size = grid.ranks, .sharers = grid.replicas},
      [&](int replica, int rank) {
        return make_cuda_ops(
            {.device = grid.device(replica, rank), .graphs = graphs, .batch_invariant = true});
      },
      quantization);
  std::vector<Lockstep::Exchanges> by_rank;
  by_rank.reserve(static_cast<size_t>(grid.ranks));
  for (int rank = 0; rank < grid.ranks; ++rank)
    by_rank.push_back(group.on_devices.emplace_back(grid.devices_of_rank(rank)).make_exchanges());
  group.lockstep.emplace(std::move(by_rank));
  for (int replica = 0; replica < grid.replicas && grid.ranks > 1; ++replica)
    group.models[static_cast<size_t>(replica)]->group =
        std::make_unique<devices::DeviceGroup>(grid.devices_of_replica(replica), kOwnersFrom);
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

// Requests, and how they are computed alone and in company.
struct Load {
  Lengths lengths = kLengths;
  Setup (*alone)() = setup_alone;
  Setup (*random)(std::mt19937_64& rng) = random_shared_setup;
};

// Prompts are computed whole, two or more in a step.
constexpr int kLongContext = 1536;
void make_long(Setup& s) {
  s.limits.max_context = kLongContext;
  s.num_blocks = 4 * kLongContext / s.block_size;
}
constexpr Load kLong = {.lengths = {.requests = 16, .shared = 300, .own = 1200, .output = 8},
                        .alone =
                            [] {
                              Setup s = setup_alone();
                              make_long(s);
                              return s;
                            },
                        .random =
                            [](std::mt19937_64& rng) {
                              Setup s = random_shared_setup(rng);
                              make_long(s);
                              s.limits.max_rows = 2600;
                              s.limits.policy.long_prompt = kLongContext;
                              return s;
                            }};

// Each set of requests runs in several schedules.
Totals check_schedules(Sharing& group, const char* name, int sets, const Load& load) {
  constexpr int kSchedules = 4;
  Totals totals;
  std::set<Token> said;
  for (int seed = 0; seed < sets; ++seed) {
    std::mt19937_64 rng(static_cast<uint64_t>(seed));
    const store::TempDir storage;
    const auto requests = random_requests(rng, group.models[0]->weights.spec.vocab, load.lengths);
    const Texts alone = group.texts_of(load.alone(), requests, rng, storage);
    for (const auto& [id, heard] : alone) said.insert(heard.tokens.begin(), heard.tokens.end());
    for (int schedule = 0; schedule < kSchedules; ++schedule) {
      SCOPED_TRACE(testing::Message() << name << " seed " << seed << " schedule " << schedule);
      const Setup setup = load.random(rng);
      const Dealt dealt(requests, group.models.size(), rng);
      const auto commands = dealt.commands(/*cancels=*/0, rng);
      std::vector<Listener> heard(group.models.size());
      group.run_all(setup, commands, rng() % 2 ? &alone : nullptr, rng, storage, heard, totals);
      for (const auto& [id, text] : alone) {
        expect_same(heard[dealt.replica_of.at(id)], {{id, text}});
        if (testing::Test::HasFatalFailure()) return totals;
      }
    }
  }
  std::printf("%d schedules, %ld steps of up to %d rows\n", sets * kSchedules, totals.steps,
              totals.widest);
  print(name, totals, said.size());
  EXPECT_GT(totals.cached, 0u);
  EXPECT_GT(totals.kept, 0);
  EXPECT_GT(said.size(), 20u) << "the text must depend on the context";
  return totals;
}

// The step with most rows must have at least `wide_steps`.
void check_on_devices(const char* name, const char* config, const Grid& grid, int sets,
                      std::string_view quantization = {}, const Load& load = {},
                      int wide_steps = 0) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  const std::string no_grid = devices::why_no_grid(grid.replicas * grid.ranks);
  if (grid.ranks > 1 && !no_grid.empty()) GTEST_SKIP() << no_grid;
  const DummyFolder folder(name, config);
  Sharing group;
  try {
    put_on_devices(group, folder.path(), grid, /*graphs=*/false, quantization);
  } catch (const LoadError& e) {
    GTEST_SKIP() << "no batch-invariant devices: " << e.what();
  }
  if (grid.has_devices())
    group.begin_service();
  else
    std::printf("%d replicas of %d ranks on one device\n", grid.replicas, grid.ranks);
  EXPECT_GE(check_schedules(group, name, sets, load).widest, wide_steps);
}

void check_on_host(const char* name, const char* config, const Grid& grid, int sets) {
  const DummyFolder folder(name, config);
  Sharing group(folder.path(), model::LoadFormat::kDummy, DType::kBF16, grid.replicas, grid.ranks);
  check_schedules(group, name, sets,
                  {.lengths = {.requests = 12, .shared = 120, .own = 120, .output = 12}});
}

// Two replicas of so many ranks, on a device each, or on the host, which computes ahead as a device
// does, with a module that drafts, or the model itself, whose drafts are right but for rounding.
struct Drafting {
  bool on_devices = true, itself = false;
  int requests = 20;
  int ranks = 1;

  // With recordings, replicas serve one executor each.
  std::unique_ptr<Sharing> replicas(const std::string& folder, bool graphs) const {
    if (!on_devices)
      return std::make_unique<Sharing>(folder, model::LoadFormat::kDummy, DType::kBF16, 2, ranks);
    auto group = std::make_unique<Sharing>();
    put_on_devices(*group, folder, {.replicas = 2, .ranks = ranks}, graphs);
    if (!graphs) group->begin_service();
    return group;
  }
  void add_drafters(Sharing& group, const std::string& folder) const {
    if (itself)
      group.add_drafters({.method = "draft_model", .model = folder}, folder,
                         model::LoadFormat::kDummy, /*seed=*/5);
    else
      group.add_drafters({.method = "mtp"}, folder, model::LoadFormat::kDummy);
  }
};

// Each request's drafts and its text, which are to be the same in all schedules. Where blocks are
// shared, drafts depend on other requests: a module's last row of a block takes the token behind
// it.
struct Expected {
  Texts texts;
  DraftsHeard drafts;
};

void check_drafts_in(Sharing& group, const std::vector<NewSequence>& requests, Setup setup,
                     Expected& expected, std::mt19937_64& rng, Totals& totals) {
  const store::TempDir storage;
  setup.captures.drafts = setup.draft_tokens;
  setup.records = true;
  if (!setup.share) setup.heard = &expected.drafts;
  const Dealt dealt(requests, 2, rng);
  std::vector<Listener> heard(2);
  group.run_all(setup, dealt.commands(/*cancels=*/0, rng), nullptr, rng, storage, heard, totals);
  for (const auto& [id, text] : expected.texts)
    ASSERT_NO_FATAL_FAILURE(expect_same(heard[dealt.replica_of.at(id)], {{id, text}}));
}

// Schedules of one set of requests, with one to three drafts behind recorded steps.
void check_drafts_of(Sharing& plain, const Drafting& how, const std::string& folder, int seed,
                     Totals& totals) {
  std::mt19937_64 rng(static_cast<uint64_t>(seed));
  const store::TempDir storage;
  auto requests =
      random_requests(rng, plain.models[0]->weights.spec.vocab,
                      {.requests = how.requests, .shared = 120, .own = 120, .output = 60});
  if (seed % 3 < 2 || how.itself) let_chain(requests);
  if (how.itself)
    for (NewSequence& one : requests) one.params = {.temperature = 0};
  Expected expected{.texts = plain.texts_of(setup_alone(), requests, rng, storage), .drafts = {}};
  for (int schedule = 0; schedule < 3; ++schedule) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " schedule " << schedule);
    Setup setup = random_shared_setup(rng);
    if (schedule > 0) setup.num_blocks = kContext / kBlock + 1;
    if (seed % 2) {
      setup.share = false;
      setup.tiers = {};
    }
    setup.draft_tokens = 1 + (seed + schedule) % 3;
    setup.chains = true;
    setup.limits.max_rows = std::max(setup.limits.max_rows, 4 * setup.limits.max_seqs);
    setup.limits.max_logit_rows = 4 * setup.limits.max_seqs;
    const auto group = how.replicas(folder, /*graphs=*/true);
    how.add_drafters(*group, folder);
    ASSERT_NO_FATAL_FAILURE(check_drafts_in(*group, requests, setup, expected, rng, totals));
  }
  totals.compared += expected.drafts.compared;
}

void check_drafts(const char* name, const char* config, int sets, const Drafting& how) {
  const DummyFolder folder(name, config);
  std::unique_ptr<Sharing> plain;
  try {
    plain = how.replicas(folder.path(), /*graphs=*/false);
  } catch (const LoadError& e) {
    GTEST_SKIP() << "no batch-invariant devices: " << e.what();
  }
  Totals totals;
  for (int seed = 0; seed < sets; ++seed)
    ASSERT_NO_FATAL_FAILURE(check_drafts_of(*plain, how, folder.path(), seed, totals));
  print(name, totals, 0);
  EXPECT_GT(totals.preemptions, 0u);
  EXPECT_GT(totals.cached, 0u);
  EXPECT_GT(totals.chained, 100);
  EXPECT_GT(totals.compared, totals.drafted / 8);
  EXPECT_TRUE(!how.itself || totals.kept * 4 > totals.drafted);
}

void check_drafts_on_devices(const char* name, const char* config, int sets,
                             const Drafting& how = {}) {
  if (num_cuda_devices() < 2 * how.ranks)
    GTEST_SKIP() << "needs " << 2 * how.ranks << " CUDA devices";
  check_drafts(name, config, sets, how);
}

TEST(SharedExpertsAhead, Ernie) { check_on_host("ahead_ernie", kErnie, {.replicas = 3}, 1); }
TEST(SharedExpertsAhead, DeepSeek) { check_on_host("ahead_deepseek", kDeepSeek, {}, 1); }
TEST(SharedExpertsAhead, ErnieInRanks) {
  check_on_host("ahead_ernie_ranks", kErnie, {.ranks = 2}, 1);
}
TEST(SharedExpertsAhead, DraftsOfRanks) {
  check_drafts("ahead_drafts_ranks", kDeepSeek, 2,
               {.on_devices = false, .requests = 12, .ranks = 2});
}
TEST(SharedExpertsAhead, Drafts) {
  check_drafts("ahead_drafts", kDeepSeek, 2, {.on_devices = false, .requests = 12});
  check_drafts("ahead_itself", kQwen, 2, {.on_devices = false, .itself = true, .requests = 12});
}

TEST(SharedExpertsOnDevices, ErnieInTwoReplicas) {
  check_on_devices("shared_ernie_2", kErnie, {}, 8);
}

TEST(SharedExpertsOnDevices, ErnieInThreeReplicas) {
  check_on_devices("shared_ernie_3", kErnie, {.replicas = 3}, 4);
}

TEST(SharedExpertsOnDevices, DeepSeekInTwoReplicas) {
  check_on_devices("shared_deepseek_2", kDeepSeek, {}, 8);
}

TEST(SharedExpertsOnDevices, DeepSeekInFourReplicas) {
  check_on_devices("shared_deepseek_4", kDeepSeek, {.replicas = 4}, 3);
}

TEST(SharedExpertsOnDevices, ErnieInTwoReplicasOfTwoRanks) {
  check_on_devices("shared_ernie_2x2", kErnie, {.ranks = 2}, 4);
}

TEST(SharedExpertsOnDevices, DeepSeekInTwoReplicasOfTwoRanks) {
  check_on_devices("shared_deepseek_2x2", kDeepSeek, {.ranks = 2}, 4);
}

// Products of packed weights have kernels of their own, and those of a shared expert a lane.
TEST(SharedExpertsOnDevices, PackedErnieInTwoReplicas) {
  check_on_devices("shared_ernie_packed", kErnie, {}, 4, "wint4");
}

TEST(SharedExpertsOnDevices, PackedDeepSeekInTwoReplicas) {
  check_on_devices("shared_deepseek_packed", kDeepSeek, {}, 4, "wint8");
}

// Rows of a replica that do not fit a slot of a mailbox go through rings.
TEST(SharedExpertsOnDevices, PackedDeepSeekOfManyRows) {
  check_on_devices("shared_deepseek_wide", kWideDeepSeek, {}, 2, "wint4", kLong,
                   (8 << 20) / kWideRowBytes + 1);
}

TEST(SharedExpertsOnDevices, DraftsOfErniesModule) {
  check_drafts_on_devices("shared_ernie_drafts", kErnie, 6);
}

TEST(SharedExpertsOnDevices, DraftsOfDeepSeeksModule) {
  check_drafts_on_devices("shared_deepseek_drafts", kDeepSeek, 6);
}

TEST(SharedExpertsOnDevices, DraftsOfTheModelItself) {
  check_drafts_on_devices("shared_qwen_itself", kQwen, 4, {.itself = true});
}

TEST(SharedExpertsOnDevices, DraftsOfAModuleInRanks) {
  check_drafts_on_devices("shared_deepseek_drafts_2x2", kDeepSeek, 3, {.ranks = 2});
}

TEST(SharedExpertsOnDevices, DraftsOfTheModelItselfInRanks) {
  check_drafts_on_devices("shared_qwen_itself_2x2", kQwen, 2, {.itself = true, .ranks = 2});
}

// As users start it.
void check_texts_under_the_engine(int ranks) {
  if (num_cuda_devices() < 2 * ranks) GTEST_SKIP() << "needs " << 2 * ranks << " CUDA devices";
  const DummyFolder folder("shared_engine_drafts", kDeepSeek);
  EngineConfig config;
  config.model = folder.path();
  config.device = "cuda";
  config.load_format = model::LoadFormat::kDummy;
  config.quiet = config.batch_invariant = config.expert_parallel = true;
  config.replicas = 2;
  config.tensor_parallel = ranks;
  config.num_blocks_override = 64;
  config.policy.step_seconds = std::numeric_limits<double>::infinity();  // nothing is measured
  const auto without = hear_six(config);
  // Steps are chained where nobody asks for log-probabilities.
  for (const auto& [tokens, logprobs] : {std::pair{1, kNoLogprobs}, {3, kNoLogprobs}, {2, 2}}) {
    config.speculation = draft::Settings{.method = "mtp", .tokens = tokens};
    sched::DraftStats drafts;
    const auto with = hear_six(config, &drafts, logprobs);
    EXPECT_GT(drafts.drafted, 0u);
    for (const auto& [id, alone] : without) {
      EXPECT_EQ(with.at(id).tokens, alone.tokens) << tokens << " drafts, request " << id;
      EXPECT_TRUE(logprobs == kNoLogprobs || with.at(id).logprobs == alone.logprobs);
    }
  }
}

TEST(SharedExpertsOnDevices, TextsUnderTheEngineAreThoseWithoutAModule) {
  check_texts_under_the_engine(1);
}

TEST(SharedExpertsOnDevices, TextsOfRanksUnderTheEngineAreThoseWithoutAModule) {
  check_texts_under_the_engine(2);
}

}  // namespace
}  // namespace skiff::engine

// Neither 21 columns nor five experts can be cut in equal parts.
constexpr const char* kMixture = R"({
  "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 32, "vocab_size": 96, "head_dim": 8,
  "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 256, "torch_dtype": "float32",
  "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 21,
  "norm_topk_prob": true, "rms_norm_eps": 1e-6})";

// A model cut among ranks, under the engine: each request's tokens and log-probabilities are bit
// for bit those that it gets alone in a group of that size, whatever else happens, and a rank that
// fails ends the group with its reason.
#include "engine/rank_group.h"

#include <gmock/gmock.h>
#include <pthread.h>

#include <atomic>
#include <limits>
#include <thread>

#include "base/load_error.h"
#include "engine/failing_ops_testing.h"
#include "engine/group_runner.h"
#include "engine/lockstep.h"
#include "engine/resolve.h"
#include "engine/schedules_testing.h"
#include "weights/safetensors_writer_testing.h"

namespace skiff::engine {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr const char* kFourHeads = R"({
  "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "vocab_size": 96,
  "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 256, "torch_dtype": "float32"})";

void check_schedules(const std::string& dir, model::LoadFormat format, DType act, int size,
                     int cases, Moe::Deal deal = Moe::kSlices) {
  const auto model = cut_model(dir, format, act, size, 1, deal);
  const auto other = cut_model(dir, format, act, size, 2, deal);
  Totals totals;
  std::set<Token> said;
  for (int seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE(::testing::Message() << dir << ", " << size << " ranks, seed " << seed);
    std::mt19937_64 rng(static_cast<uint64_t>(seed));
    const store::TempDir storage;
    const auto requests = random_requests(rng, model->weights.spec.vocab);
    const Texts alone = texts_alone(*model, requests, rng, storage);
    for (const auto& [id, heard] : alone) said.insert(heard.tokens.begin(), heard.tokens.end());
    const Setup setup = random_setup(rng);
    const bool drafts = rng() % 2;
    const int lives = setup.file_records > 0 ? 2 : 1;  // the file is found again
    for (int life = 0; life < lives; ++life) {
      Listener listener;
      run(rng() % 2 ? *model : *other, setup, shuffled_commands(requests, 0, rng), rng,
          drafts ? &alone : nullptr, storage, listener, totals);
      ASSERT_NO_FATAL_FAILURE(expect_same(listener, alone));
    }
  }
  print(dir, totals, said.size());
  if (cases < 100) return;
  EXPECT_GT(totals.preemptions, 0u);
  EXPECT_GT(totals.cached, 0u);
  EXPECT_GT(totals.from_host + totals.from_file, 0u);
  EXPECT_GT(totals.kept, 0);
  EXPECT_GT(said.size(), 20u) << "the text must depend on the context";
}

TEST(RankGroupSchedules, TwoRanks) {
  DummyFolder folder("group_f32", kFourHeads);
  check_schedules(folder.path(), model::LoadFormat::kDummy, DType::kF32, 2, 200);
  check_schedules(folder.path(), model::LoadFormat::kDummy, DType::kBF16, 2, 100);
}

TEST(RankGroupSchedules, FourRanksHaveKeysAndValuesTwice) {
  DummyFolder folder("group_four", kFourHeads);
  check_schedules(folder.path(), model::LoadFormat::kDummy, DType::kF32, 4, 100);
}

TEST(RankGroupSchedules, SmallCheckpoints) {
  for (const std::string& dir : small_models())
    if (!dir.ends_with("/demo")) check_schedules(dir, model::LoadFormat::kAuto, DType::kF32, 2, 20);
}

TEST(RankGroupSchedules, RanksHaveExpertsWhole) {
  DummyFolder folder("group_experts", kMixture);
  for (const DType act : {DType::kF32, DType::kBF16})
    check_schedules(folder.path(), model::LoadFormat::kDummy, act, 2, 100, Moe::kWhole);
  check_schedules(folder.path(), model::LoadFormat::kDummy, DType::kF32, 4, 40, Moe::kWhole);
}

TEST(RankGroupSchedules, SmallMixturesWithWholeExperts) {
  for (const std::string& dir : small_models()) {
    const bool mixture = deals_experts_whole(Model::config_of(dir, Moe::kWhole).spec);
    if (!mixture || dir.ends_with("/demo")) continue;
    for (const int size : {2, 4})
      check_schedules(dir, model::LoadFormat::kAuto, DType::kF32, size, 10, Moe::kWhole);
  }
}

// Runs for minutes: --gtest_also_run_disabled_tests.
TEST(RankGroupSchedules, DISABLED_AtLength) {
  DummyFolder folder("group_long", kFourHeads);
  check_schedules(folder.path(), model::LoadFormat::kDummy, DType::kF32, 2, 10'000);
}

class RankGroupTest : public ::testing::Test {
 protected:
  RankGroupTest()
      : folder_(::testing::UnitTest::GetInstance()->current_test_info()->name(), kFourHeads) {
    config_.model = folder_.path();
    config_.device = "cpu";
    config_.load_format = model::LoadFormat::kDummy;
    config_.block_size = 8;
    config_.threads = 3;
    config_.max_num_seqs = 64;
    config_.max_model_len = 32;
    config_.num_blocks_override = 80;
    config_.tensor_parallel = 2;
  }
  std::unique_ptr<RankGroup> start() {
    model_ = read_model(config_);
    resolved_ = resolve(config_, model_);
    return std::make_unique<RankGroup>(resolved_, model_, log_);
  }
  std::string refusal() {
    try {
      start();
    } catch (const LoadError& error) {
      return error.what();
    }
    return "";
  }
  // A step of prompts of three tokens, each in a block of its own.
  static StepPlan prompts(uint64_t step, int seqs) {
    StepPlan plan{.step = step, .page_start = {0}};
    for (int s = 0; s < seqs; ++s) {
      const std::vector<Token> tokens = {5 + s, 6, 7};
      plan.spans.push_back(
          {.seq = static_cast<SeqId>(s + 1), .slot = s, .count = 3, .sample = true});
      plan.tokens.insert(plan.tokens.end(), tokens.begin(), tokens.end());
      plan.pages.push_back(s);
      plan.page_start.push_back(s + 1);
      plan.opened.push_back({.slot = s,
                             .params = {.temperature = 0, .logprobs = 5},
                             .history = tokens,
                             .prompt_len = 3});
    }
    return plan;
  }

  void use_mixture() {
    mixture_.emplace("rank_group_mixture", kMixture);
    config_.model = mixture_->path();
    config_.expert_parallel = true;
  }

  // A sequence gives the same token and log-probabilities alone and in batches of 7 and 64.
  void expect_rows_alike(std::initializer_list<int> sizes) {
    for (const int size : sizes) {
      config_.tensor_parallel = size;
      const auto group = start();
      group->make_executors(none_);
      const auto runner = group->make_runner();
      std::vector<StepResult> results;
      for (const int seqs : {1, 7, 64}) {
        runner->launch(prompts(static_cast<uint64_t>(seqs), seqs));
        results.push_back(runner->wait(static_cast<uint64_t>(seqs)));
        EXPECT_EQ(results.back().tokens[0], results[0].tokens[0]);
        ASSERT_NO_FATAL_FAILURE(expect_same(results.back().logprobs[0], results[0].logprobs[0]))
            << size << " ranks, " << seqs << " sequences";
      }
    }
  }

  DummyFolder folder_;
  std::optional<DummyFolder> mixture_;
  EngineConfig config_;
  model::ModelConfig model_;
  Resolved resolved_;
  StartLog log_{.quiet = true};
  model::HostBlocks none_;
};

TEST_F(RankGroupTest, ARowInBatchesOfOneSevenAndSixtyFour) { expect_rows_alike({1, 2, 4}); }

TEST_F(RankGroupTest, RanksShareThreadsAndHaveAsManyBlocks) {
  config_.num_blocks_override = 0;
  const auto group = start();
  ASSERT_EQ(group->size(), 2);
  EXPECT_EQ(group->rank(0).memory().blocks, group->rank(1).memory().blocks);
  EXPECT_EQ(settings_of_rank(resolved_, model_, {.rank = 0, .size = 2}).threads, 1);
  EXPECT_EQ(settings_of_rank(resolved_, model_, {.rank = 1, .size = 2}).threads, 2);
  EXPECT_EQ(log_.memory, group->first().memory().table());
  config_.tensor_parallel = 1;
  const auto alone = start();
  EXPECT_LT(group->first().memory().weights, alone->first().memory().weights);
  EXPECT_EQ(group->first().memory().kv_block * 2, alone->first().memory().kv_block);
}

TEST_F(RankGroupTest, RanksPlanAndHaveTheirOwnExperts) {
  use_mixture();
  config_.max_num_seqs = 8;
  const auto group = start();
  EXPECT_TRUE(resolved_.whole_experts);
  constexpr size_t kExpert = size_t{2} * 3 * 21 * 32 * sizeof(float);  // an expert's in both layers
  size_t sum = 0;
  for (int rank = 0; rank < 2; ++rank) {
    Rank& one = group->rank(rank);
    EXPECT_EQ(one.memory().weights, one.weights().bytes);
    EXPECT_EQ(std::get<Moe>(one.weights().spec.layers[1].ffn).router.here(), rank == 0 ? 3 : 2);
    sum += one.weights().bytes;
  }
  EXPECT_GT(group->rank(0).weights().bytes, group->rank(1).weights().bytes + kExpert / 2);
  EXPECT_EQ(group->rank(0).memory().blocks, group->rank(1).memory().blocks);
  config_.tensor_parallel = 1;
  const auto alone = start();
  EXPECT_FALSE(resolved_.whole_experts) << "one rank has all experts anyway";
  EXPECT_LT(sum, alone->first().weights().bytes + 3 * kExpert) << "no expert is there twice";
}

TEST_F(RankGroupTest, ARowOfAMixtureInBatchesOfOneSevenAndSixtyFour) {
  use_mixture();
  expect_rows_alike({2, 4});
}

TEST_F(RankGroupTest, ExpertsThatCannotBeSharedOutAreRefused) {
  use_mixture();
  config_.tensor_parallel = 2;
  config_.expert_parallel = false;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("the 21 columns of the experts' width of layer 0"),
                               HasSubstr("--enable-expert-parallel")));
}

TEST_F(RankGroupTest, SizesThatDoNotDivideAreRefused) {
  config_.tensor_parallel = 3;
  EXPECT_EQ(refusal(),
            "--tensor-parallel-size 3: the 4 query heads of layer 0 cannot be shared out among 3 "
            "ranks; sizes that fit this model: 1, 2, 4");
  config_.tensor_parallel = 65;
  EXPECT_THAT(refusal(), HasSubstr("--tensor-parallel-size is 65; it must be from 1 to 64"));
  config_.tensor_parallel = 2;
  config_.device = "cuda:100";
  EXPECT_THAT(refusal(), HasSubstr("there are 0 CUDA devices from cuda:100 on, and each rank needs "
                                   "one of its own"));
}

// A value that only rank 1 reads cannot be quantized: the group ends with what rank 1 says.
TEST_F(RankGroupTest, ARankThatCannotLoadEndsTheGroup) {
  config_.load_format = model::LoadFormat::kAuto;
  config_.quantization = "wint8";
  std::vector<testing::FileTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, bool bad = false) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    std::vector<float> values(static_cast<size_t>(n), 0.25f);
    if (bad) values.back() = std::numeric_limits<float>::quiet_NaN();
    tensors.push_back({name, "F32", std::move(shape), testing::f32_bytes(values)});
  };
  add("model.embed_tokens.weight", {96, 32});
  add("model.norm.weight", {32});
  add("lm_head.weight", {96, 32});
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight"})
      add(layer + norm, {32});
    for (const char* mlp : {"mlp.gate_proj.weight", "mlp.up_proj.weight"})
      add(layer + mlp, {48, 32});
    for (const char* kv : {"self_attn.k_proj.weight", "self_attn.v_proj.weight"})
      add(layer + kv, {16, 32});
    for (const char* qo : {"self_attn.q_proj.weight", "self_attn.o_proj.weight"})
      add(layer + qo, {32, 32});
    add(layer + "mlp.down_proj.weight", {32, 48}, layer == "model.layers.1.");
  }
  testing::write_file(folder_.path() + "/model.safetensors", testing::safetensors_bytes(tensors));
  EXPECT_THAT(refusal(), ContainsRegex("layers.1.mlp.down_proj.*not finite"));
}

// The ranks of one replica wait for those of the other when these find no memory.
TEST_F(RankGroupTest, AReplicaThatCannotStartEndsThoseThatShareItsExperts) {
  use_mixture();
  config_.expert_parallel = true;
  config_.replicas = 2;
  const model::ModelConfig model = read_model(config_);
  const Resolved all = resolve(config_, model);
  Resolved poor = replica_of(all, 1);
  poor.cache.num_blocks.reset();
  poor.memory_utilization = 1e-12;
  Lockstep lockstep(2, 2);
  std::string waited, failed;
  const auto start = [&](const Resolved& resolved, std::string& said) {
    StartLog log{.quiet = true};
    try {
      RankGroup(resolved, model, log, {.lockstep = &lockstep});
    } catch (const std::exception& error) {
      said = error.what();
    }
  };
  std::thread waits([&] { start(replica_of(all, 0), waited); });
  start(poor, failed);
  waits.join();
  EXPECT_THAT(failed, HasSubstr("GiB"));
  EXPECT_THAT(waited, AllOf(HasSubstr("replica 1: rank "), HasSubstr(failed)));
}

// Work besides steps is done on each rank's own thread, behind the steps that were launched; what
// it throws is the caller's, and the ranks go on.
TEST_F(RankGroupTest, WorkIsDoneOnTheThreadOfEachRank) {
  for (const int size : {1, 2, 4}) {
    config_.tensor_parallel = size;
    const auto group = start();
    group->make_executors(none_);
    const auto runner = group->make_runner();
    runner->launch(prompts(1, 7));
    std::vector<std::string> names(static_cast<size_t>(size));
    runner->on_ranks([&](size_t rank) {
      char name[16] = {};
      pthread_getname_np(pthread_self(), name, sizeof name);
      names[rank] = name;
    });
    for (int rank = 0; rank < size; ++rank)
      EXPECT_EQ(names[static_cast<size_t>(rank)],
                rank == 0 ? "device" : fmt::format("device {}", rank));
    std::atomic<int> done = 0;
    const auto fail = [&](size_t rank) {
      ++done;
      if (rank + 1 == names.size()) throw LoadError(fmt::format("rank {} cannot", rank));
    };
    std::string said;
    try {
      runner->on_ranks(fail);
    } catch (const LoadError& error) {
      said = error.what();
    }
    EXPECT_EQ(said, fmt::format("rank {} cannot", size - 1));
    EXPECT_EQ(done, size) << "all are waited for";
    const StepResult before = runner->wait(1);
    runner->launch(prompts(2, 7));
    EXPECT_EQ(runner->wait(2).tokens, before.tokens);
  }
}

TEST_F(RankGroupTest, ARankThatFailsInAStepEndsTheGroup) {
  for (const int failing : {0, 1}) {
    for (const int norms : {1, 4, 7}) {
      const auto rank = [&](int index) {
        std::unique_ptr<Ops> ops = make_reference_ops();
        if (index == failing) ops = std::make_unique<FailingOps>(norms);
        return std::make_unique<Model>(folder_.path(), model::LoadFormat::kDummy, DType::kF32,
                                       std::move(ops), std::nullopt,
                                       model::RankOf{.rank = index, .size = 2});
      };
      const auto a = rank(0), b = rank(1);
      const engine::Setup setup;
      auto meshes = comm::make_thread_meshes(2);
      const model::HostBlocks host(a->weights.spec, 0, setup.block_size, a->kv, {}, 2);
      RankOfRun first(*a, meshes[0], setup, host.part(0, 2)),
          second(*b, meshes[1], setup, host.part(1, 2));
      GroupRunner runner({{first.executor, *meshes[0].tp}, {second.executor, *meshes[1].tp}},
                         Device{});
      runner.launch(prompts(1, 1));
      runner.launch(prompts(2, 1));
      std::string said;
      for (const uint64_t step : {1, 2}) {
        try {
          runner.wait(step);
        } catch (const std::runtime_error& error) {
          said = error.what();
        }
      }
      EXPECT_EQ(said, fmt::format("rank {}: no room", failing)) << norms << " norms";
    }
  }
}

}  // namespace
}  // namespace skiff::engine

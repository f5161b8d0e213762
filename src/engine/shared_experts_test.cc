// Replicas that share the experts of a mixture: each request's tokens and log-probabilities are bit
// for bit those that it gets alone in such a group, whatever else runs in any of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <map>
#include <random>
#include <thread>

#include "base/load_error.h"
#include "engine/ear_testing.h"
#include "engine/fingerprint.h"
#include "engine/model_testing.h"
#include "engine/resolve.h"
#include "engine/resolve_checks.h"

namespace skiff::engine {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kVocab = 112;  // that of the golden models

// More replicas than processors wait long for each other, so they get fewer requests.
struct Case {
  const char* model;
  DType act;
  int replicas;
  size_t requests;
  int ranks = 1;
};

std::string golden(const char* name) {
  return std::string(SKIFF_SOURCE_DIR) + "/tests/golden/" + name;
}

EngineConfig config_of(const std::string& model, int replicas) {
  EngineConfig config;
  config.model = model;
  config.device = "cpu";
  config.threads = 2;
  config.block_size = 8;
  config.quiet = true;
  config.replicas = replicas;
  config.expert_parallel = true;
  config.policy.step_seconds = std::numeric_limits<double>::infinity();  // nothing is measured
  return config;
}

std::vector<Token> random_tokens(std::mt19937_64& rng, size_t count) {
  std::vector<Token> tokens;
  while (tokens.size() < count) tokens.push_back(static_cast<Token>(rng() % kVocab));
  return tokens;
}

NewSequence random_request(std::mt19937_64& rng, SeqId id, const std::vector<Token>& beginning) {
  NewSequence one{.id = id, .prompt = {}, .params = {}, .stop = {}, .cache = {}};
  if (rng() % 2) one.prompt = beginning;
  const auto tail = random_tokens(rng, 1 + rng() % 40);
  one.prompt.insert(one.prompt.end(), tail.begin(), tail.end());
  one.params.temperature = rng() % 3 ? 1.0f : 0.0f;
  one.params.seed = rng();
  one.params.logprobs = 2;
  one.params.prompt_logprobs = rng() % 4 ? kNoLogprobs : 1;
  one.stop.max_tokens = 1 + static_cast<int>(rng() % 40);
  return one;
}

std::vector<NewSequence> random_requests(size_t count) {
  std::mt19937_64 rng(1);
  const std::vector<Token> beginning = random_tokens(rng, 40);
  std::vector<NewSequence> all;
  for (SeqId id = 1; id <= count; ++id) all.push_back(random_request(rng, id, beginning));
  return all;
}

NewSequence greedy(SeqId id, int prompt, int max_tokens) {
  NewSequence s{.id = id, .prompt = {}, .params = {.temperature = 0}, .stop = {}, .cache = {}};
  for (int i = 0; i < prompt; ++i) s.prompt.push_back((i * 7 + static_cast<int>(id) * 3) % kVocab);
  s.params.logprobs = 1;
  s.stop.max_tokens = max_tokens;
  return s;
}

// Asks for each sequence while nothing else runs.
std::map<SeqId, Heard> alone(const EngineConfig& config, const std::vector<NewSequence>& all) {
  Ear ear;
  const auto llm = Llm::start(config, ear.sink());
  std::map<SeqId, Heard> heard;
  int ended = 0;
  for (const NewSequence& sequence : all) {
    llm->submit(sequence);
    EXPECT_TRUE(ear.wait_for_ends(++ended));
    heard[sequence.id] = ear.of(sequence.id);
  }
  return heard;
}

void expect_same(const Heard& heard, const Heard& right, SeqId id) {
  EXPECT_EQ(heard.tokens, right.tokens) << "sequence " << id;
  EXPECT_EQ(heard.logprobs, right.logprobs) << "sequence " << id;
  EXPECT_EQ(heard.prompt_logprobs, right.prompt_logprobs) << "sequence " << id;
  EXPECT_EQ(heard.finish, right.finish) << "sequence " << id;
}

class SharedExperts : public testing::TestWithParam<Case> {};

// Few blocks and rows, so that sequences are preempted and prompts are cut. Requests come in bursts
// of one to twelve, so that replicas are idle at times; some are cancelled.
TEST_P(SharedExperts, TokensAreThoseOfTheRequestAloneInRandomSchedules) {
  const auto& [model, act, replicas, requests, ranks] = GetParam();
  EngineConfig config = config_of(golden(model), replicas);
  config.tensor_parallel = ranks;
  config.dtype = act;
  const std::vector<NewSequence> all = random_requests(requests);
  const auto expected = alone(config, all);

  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 24;
  config.max_model_len = 128;
  config.num_blocks_override = 17;
  Ear ear;
  const auto llm = Llm::start(config, ear.sink());
  std::mt19937_64 rng(2);
  int ended = 0;
  for (size_t next = 0; next < all.size();) {
    const size_t begin = next, end = std::min(all.size(), next + 1 + rng() % 12);
    std::vector<SeqId> cancelled;
    for (; next < end; ++next) {
      llm->submit(all[next]);
      if (rng() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(rng() % 3000));
      if (rng() % 16) continue;
      llm->cancel(all[next].id);
      cancelled.push_back(all[next].id);
    }
    ended += static_cast<int>(end - begin);
    ASSERT_TRUE(ear.wait_for_ends(ended));
    for (size_t i = begin; i < end; ++i)
      if (std::ranges::count(cancelled, all[i].id) == 0)
        expect_same(ear.of(all[i].id), expected.at(all[i].id), all[i].id);
  }
  uint64_t preemptions = 0;
  for (const EngineStats& stats : llm->stats_of_each()) {
    EXPECT_GT(stats.steps, 0u);
    EXPECT_EQ(stats.blocks_free, stats.blocks_total);
    preemptions += stats.preemptions;
  }
  EXPECT_GT(preemptions, 0u);
}

INSTANTIATE_TEST_SUITE_P(Models, SharedExperts,
                         testing::Values(Case{"qwen3_moe", DType::kF32, 2, 120},
                                         Case{"qwen3_moe", DType::kBF16, 3, 40},
                                         Case{"ernie45_moe", DType::kF32, 2, 80},
                                         Case{"ernie45_moe", DType::kBF16, 2, 80},
                                         Case{"deepseek_v3", DType::kF32, 2, 120},
                                         Case{"deepseek_v3", DType::kBF16, 4, 40},
                                         Case{"qwen3_moe", DType::kBF16, 2, 60, /*ranks=*/2},
                                         Case{"ernie45_moe", DType::kF32, 3, 24, /*ranks=*/2},
                                         Case{"deepseek_v3", DType::kF32, 2, 40, /*ranks=*/2}),
                         [](const auto& info) {
                           return fmt::format("{}_{}_{}x{}", info.param.model, name(info.param.act),
                                              info.param.replicas, info.param.ranks);
                         });

// Sums are taken in another order than by one engine with all experts, so the last digits differ.
TEST(SharedExpertsTest, AnswersAreThoseOfOneEngineButForRounding) {
  for (const char* model : {"qwen3_moe", "ernie45_moe", "deepseek_v3"}) {
    EngineConfig config = config_of(golden(model), 2);
    config.dtype = DType::kF32;
    std::vector<NewSequence> all;
    for (SeqId id = 1; id <= 6; ++id) all.push_back(greedy(id, 20 + static_cast<int>(id), 12));
    const auto shared = alone(config, all);
    config.tensor_parallel = 2;
    const auto by_ranks = alone(config, all);
    config.replicas = config.tensor_parallel = 1;
    config.expert_parallel = false;
    const auto whole = alone(config, all);
    for (const NewSequence& one : all)
      for (const auto* of : {&shared, &by_ranks}) {
        const Heard &a = of->at(one.id), &b = whole.at(one.id);
        ASSERT_EQ(a.tokens, b.tokens) << model << ", sequence " << one.id;
        for (size_t i = 0; i < a.logprobs.size(); ++i)
          EXPECT_NEAR(a.logprobs[i].chosen.logprob, b.logprobs[i].chosen.logprob, 1e-4) << model;
      }
  }
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST(SharedExpertsTest, AnIdleReplicaMakesNoStepAndAnIdleGroupSleeps) {
  Ear ear;
  const auto llm = Llm::start(config_of(golden("qwen3_moe"), 3), ear.sink());
  llm->submit(greedy(1, 20, 100));
  ASSERT_TRUE(ear.wait_for_ends(1));
  EXPECT_EQ(ear.of(1).tokens.size(), 100u);
  const auto each = llm->stats_of_each();
  EXPECT_EQ(std::ranges::count_if(each, [](const EngineStats& s) { return s.steps > 0; }), 1);
  std::this_thread::sleep_for(
      std::chrono::milliseconds(100));  // spinning threads have slept by now
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(cpu_seconds() - before, 0.1) << "somebody spins";
  llm->submit(greedy(2, 20, 3));
  ASSERT_TRUE(ear.wait_for_ends(2)) << "the first request after a rest";
}

// What a step costs is measured while all start, each with the others' experts.
TEST(SharedExpertsTest, StepsAreMeasuredAtTheSameTime) {
  EngineConfig config = config_of(golden("qwen3_moe"), 2);
  config.policy.step_seconds = 0.05;
  Ear ear;
  const auto llm = Llm::start(config, ear.sink());
  EXPECT_TRUE(llm->resolved().measures_steps);
  llm->submit(greedy(1, 60, 5));
  ASSERT_TRUE(ear.wait_for_ends(1));
  EXPECT_EQ(ear.of(1).tokens.size(), 5u);
}

TEST(SharedExpertsTest, StopEndsAllWhateverTheyDo) {
  for (const bool drains : {true, false}) {
    Ear ear;
    const auto llm = Llm::start(config_of(golden("qwen3_moe"), 3), ear.sink());
    for (SeqId id = 1; id <= 4; ++id) llm->submit(greedy(id, 10, 60 * static_cast<int>(id)));
    ASSERT_TRUE(ear.wait_for_tokens(1));
    llm->stop(drains);
    for (SeqId id = 1; id <= 4; ++id) {
      EXPECT_NE(ear.of(id).finish, Finish::kNone);
      if (drains) {
        EXPECT_EQ(ear.of(id).tokens.size(), 60 * id);
      }
    }
  }
}

TEST(SharedExpertsTest, EachHasItsExpertsAndAllElse) {
  EngineConfig config = config_of(golden("qwen3_moe"), 3);
  const model::ModelConfig model = read_model(config);
  const Resolved all = resolve(config, model);
  EXPECT_EQ(all.sharers, 3);
  EXPECT_EQ(all.ranks, 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(replica_of(all, i).sharer, i);
  const Arithmetic same{.backend = "a", .build = "b"};
  EXPECT_EQ(fingerprint_of(replica_of(all, 0), same), fingerprint_of(replica_of(all, 2), same));
  config.replicas = 2;
  EXPECT_NE(fingerprint_of(all, same), fingerprint_of(resolve(config, read_model(config)), same));
  Ear ear;
  const auto shared = Llm::start(config, ear.sink());
  config.expert_parallel = false;
  const auto whole = Llm::start(config, ear.sink());
  const model::MemoryPlan &a = shared->memory(), &b = whole->memory();
  EXPECT_LT(a.weights, b.weights);
  EXPECT_GT(2 * a.weights, b.weights) << "attention is there twice";
  EXPECT_EQ(a.replicas, 1);
  EXPECT_EQ(b.replicas, 2) << "they have the weights together";
}

TEST(SharedExpertsTest, AModelWithoutExpertsHasPlainReplicas) {
  const EngineConfig config = config_of(golden("qwen3"), 2);
  EXPECT_EQ(resolve(config, read_model(config)).sharers, 1);
}

std::string refusal(const EngineConfig& config) {
  try {
    Llm::start(config, [](const std::vector<Event>&) {});
  } catch (const LoadError& error) {
    return error.what();
  }
  return "";
}

TEST(SharedExpertsTest, WhatDoesNotGoTogetherIsRefused) {
  EngineConfig config = config_of(golden("qwen3_moe"), 2);
  config.replicas = 9;
  EXPECT_THAT(refusal(config), AllOf(HasSubstr("--data-parallel-size 9"), HasSubstr("8 experts")));
  config.tensor_parallel = 2;
  config.replicas = 5;
  EXPECT_THAT(refusal(config),
              AllOf(HasSubstr("--data-parallel-size 5"), HasSubstr("4 experts on a rank")));
}

TEST(SharedExpertsTest, WhatDevicesCannotDoIsRefused) {
  EngineConfig config = config_of(golden("qwen3_moe"), 2);
  const ModelSpec spec = read_model(config).spec;
  const ComputeDevice cuda{.kind = ComputeDevice::kCuda};
  check_sharing(config, spec, cuda);
  const auto refusal_on = [&](const EngineConfig& asked) -> std::string {
    try {
      check_sharing(asked, spec, cuda);
    } catch (const LoadError& error) {
      return error.what();
    }
    return "";
  };
  config.replicas = 9;
  EXPECT_THAT(refusal_on(config),
              AllOf(HasSubstr("--data-parallel-size 9 with --enable-expert-parallel"),
                    HasSubstr("on cuda"), HasSubstr("give --data-parallel-size 8")));
  config.expert_parallel = false;
  EXPECT_EQ(refusal_on(config), "");
  config.expert_parallel = true;
  config.replicas = config.tensor_parallel = 2;
  EXPECT_EQ(refusal_on(config), "") << "replicas of several ranks";
}

// A replica whose folder for blocks cannot be made ends the start of all.
TEST(SharedExpertsTest, AReplicaThatCannotStartEndsTheStart) {
  const DummyFolder folder("shared_experts_no_folder");
  EngineConfig config = config_of(golden("qwen3_moe"), 2);
  config.storage_path = folder.path();
  config.storage_gb = 0.01;
  config.version = "1";
  std::ofstream(folder.path() + "/replica-1") << "a file where the second one's folder would be";
  EXPECT_THAT(refusal(config), HasSubstr("replica-1"));
}

}  // namespace
}  // namespace skiff::engine

#include "engine/rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/lower_tiers.h"
#include "engine/model_testing.h"
#include "engine/resolve.h"
#include "ops/ops.h"
#include "store/temp_dir_testing.h"

namespace skiff::engine {
namespace {

using testing::HasSubstr;
using testing::Not;

class RankTest : public testing::Test {
 protected:
  RankTest() : folder_("rank") {
    config_.model = folder_.path();
    config_.device = "reference";
    config_.load_format = model::LoadFormat::kDummy;
    config_.block_size = 8;
  }
  void resolve_now() {
    model_ = model::read_model_config(config_.model);
    resolved_ = resolve(config_, model_);
  }
  // A step of one prompt.
  static StepPlan prompt() {
    return {.step = 1,
            .spans = {{.seq = 1, .slot = 0, .count = 3, .sample = true}},
            .tokens = {5, 6, 7},
            .pages = {0},
            .page_start = {0, 1},
            .opened = {{.slot = 0,
                        .params = {.temperature = 0, .logprobs = 3},
                        .history = {5, 6, 7},
                        .prompt_len = 3}}};
  }

  DummyFolder folder_;
  EngineConfig config_;
  model::ModelConfig model_;
  Resolved resolved_;
  comm::Mesh mesh_ = comm::make_solo_mesh();
  StartLog log_{.quiet = true};
  model::HostBlocks none_;
};

TEST_F(RankTest, HoldsAllThatAStepNeeds) {
  config_.num_blocks_override = 40;
  resolve_now();
  Rank rank(resolved_, model_, mesh_, log_);
  EXPECT_EQ(rank.memory().blocks, 40);
  EXPECT_EQ(log_.memory, rank.memory().table());
  EXPECT_THAT(log_.ledger.text(), testing::ContainsRegex("plan .*load .*kv .*total"));
  StepExecutor& executor = rank.make_executor(none_);
  EXPECT_EQ(&executor, &rank.executor());
  const StepResult result = executor.run(prompt());
  ASSERT_EQ(result.tokens.size(), 1u);
  ASSERT_EQ(result.tokens[0].size(), 1u);
  EXPECT_GE(result.tokens[0][0], 0);
  EXPECT_LT(result.tokens[0][0], model_.spec.vocab);
}

// A process may hold several ranks: no state of a rank is global.
TEST_F(RankTest, TwoOfOneResolvedComputeTheSame) {
  resolve_now();
  Rank a(resolved_, model_, mesh_, log_), b(resolved_, model_, mesh_, log_);
  const StepResult first = a.make_executor(none_).run(prompt());
  const StepResult second = b.make_executor(none_).run(prompt());
  EXPECT_EQ(first.tokens, second.tokens);
  ASSERT_EQ(first.logprobs.at(0).size(), 1u);
  EXPECT_EQ(first.logprobs[0][0].chosen.logprob, second.logprobs.at(0).at(0).chosen.logprob);
}

// Replicas on the host have one copy of the weights between them, and a share of its memory each.
TEST_F(RankTest, ATwinLoadsNothingAndComputesTheSame) {
  config_.replicas = 2;
  resolve_now();
  bool loaded = false;
  log_.progress = [&](uint64_t, uint64_t) { loaded = true; };
  auto first = std::make_unique<Rank>(resolved_, model_, mesh_, log_);
  EXPECT_TRUE(std::exchange(loaded, false));
  Rank twin(resolved_, model_, mesh_, log_, first.get());
  EXPECT_FALSE(loaded);
  EXPECT_EQ(twin.memory().table(), first->memory().table());
  const StepResult one = first->make_executor(none_).run(prompt());
  first.reset();  // the weights live as long as one of the twins
  EXPECT_EQ(twin.make_executor(none_).run(prompt()).tokens, one.tokens);
}

TEST_F(RankTest, ReportsItsPlanUnlessQuiet) {
  resolve_now();
  for (const bool quiet : {false, true}) {
    log_ = {.quiet = quiet, .progress = [](uint64_t, uint64_t) {}};
    testing::internal::CaptureStdout();  // the log of a test goes to stdout
    const Rank rank(resolved_, model_, mesh_, log_);
    const std::string said = testing::internal::GetCapturedStdout();
    const auto line = HasSubstr(fmt::format("total_block_num:{}", rank.memory().blocks));
    if (quiet)
      EXPECT_THAT(said, Not(line));
    else
      EXPECT_THAT(said, line);
  }
}

TEST_F(RankTest, ProgressIsThatOfTheWeights) {
  uint64_t seen = 0, all = 0;
  log_.progress = [&](uint64_t done, uint64_t total) { seen = done, all = total; };
  resolve_now();
  const Rank rank(resolved_, model_, mesh_, log_);
  EXPECT_GT(all, 0u);
  EXPECT_EQ(seen, all);
}

using LowerTiersTest = RankTest;

TEST_F(LowerTiersTest, AreWhatTheCacheSettingsSay) {
  const store::TempDir dir;
  const auto open = [&] {
    resolve_now();
    return open_lower_tiers(resolved_, model_.spec, *make_reference_ops(), log_);
  };
  const LowerTiers none = open();
  EXPECT_EQ(none.config.host_blocks, 0);
  EXPECT_EQ(none.host.num_blocks(), 0);
  EXPECT_EQ(none.store, nullptr);
  config_.storage_path = dir.path() + "/kv";
  config_.storage_gb = 0.01;
  const LowerTiers file = open();
  ASSERT_NE(file.store, nullptr);
  EXPECT_FALSE(file.config.spill);
  EXPECT_EQ(file.config.host_blocks, resolved_.cache.host_slots);
  EXPECT_EQ(file.host.num_blocks(), file.config.host_blocks);
  EXPECT_EQ(file.sources.size(), 1u);
  EXPECT_EQ(file.config.fingerprint.size(), sizeof(kv::BlockKey));
  config_.storage_path.clear();
  config_.swap_space_gb = 0.001;
  const LowerTiers swap = open();
  EXPECT_EQ(swap.store, nullptr);
  EXPECT_TRUE(swap.config.spill);
  EXPECT_EQ(swap.host.num_blocks(), resolved_.cache.host_slots);
}

}  // namespace
}  // namespace skiff::engine

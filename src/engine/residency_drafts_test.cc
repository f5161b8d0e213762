// What drafts sleeps with the model that it drafts for, and is read again with it. That it is there
// again shows in the drafts: a model that drafts for itself is always right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/load_error.h"
#include "engine/model_testing.h"
#include "engine/rank_weights.h"
#include "engine/residency_testing.h"
#include "engine/resolve.h"
#include "ops/reference/reference_ops.h"

namespace skiff::engine {
namespace {

using testing::HasSubstr;

class ResidencyDraftsTest : public ResidencyTest, public testing::WithParamInterface<int> {
 protected:
  ResidencyDraftsTest() {
    config_.device = "reference";  // costs are not measured there: drafts are checked at once
    config_.tensor_parallel = GetParam();
    config_.threads = 2;
  }
  void draft_by(const std::string& model, int ranks = 0) {
    config_.speculation = {.method = "draft_model", .tokens = 3, .model = model, .ranks = ranks};
  }
  struct Drafted {
    std::vector<Token> tokens;
    uint64_t drafted = 0, kept = 0;
  };
  // What a new engine says after `change`. Later it would have found that a model as large as the
  // one that is served does not pay, and would draft no more.
  Drafted drafted_after(const std::function<void()>& change) {
    start();
    change();
    Drafted out{.tokens = answer().tokens};
    const sched::DraftStats drafts = llm_->stats().drafts;
    EXPECT_GT(drafts.drafted, 0u);
    out.drafted = drafts.drafted, out.kept = drafts.kept;
    return out;
  }
  void sleep(Parts parts = kAll) { EXPECT_TRUE(residency().give_back(parts)); }
  void wake() {
    const Status back = residency().take_back(kAll);
    EXPECT_TRUE(back) << back.error().what;
  }
  void update(const std::string& folder) {
    const auto updated = residency().update({.folder = folder});
    EXPECT_TRUE(updated) << updated.error().what;
  }
};

TEST_P(ResidencyDraftsTest, AModelThatDraftsForItselfIsRightAfterEachChange) {
  const std::string other = negated("other");
  for (const int ranks : {0, 1}) {  // cut among the ranks, or whole on each
    draft_by(from_, ranks);         // it lies in the model's folder, so both are replaced
    const auto mine = FreshAnswer(config_, from_).tokens(prompt(1));
    const auto theirs = FreshAnswer(config_, other).tokens(prompt(1));
    ASSERT_NE(mine, theirs);
    const auto expect = [&](const std::vector<Token>& tokens, const std::function<void()>& change) {
      const Drafted after = drafted_after(change);
      EXPECT_EQ(after.tokens, tokens);
      EXPECT_EQ(after.kept, after.drafted);
    };
    expect(mine, [] {});
    expect(mine, [&] { sleep(), wake(); });
    expect(theirs, [&] { update(other); });
    expect(theirs, [&] { sleep(), update(other), wake(); });
    expect(theirs, [&] { update(other), sleep(), wake(); });
    expect(mine, [&] { update(other), update(from_); });
  }
}

TEST_P(ResidencyDraftsTest, AModelInAFolderOfItsOwnStaysThere) {
  const std::string other = negated("other"), own = copied("own");
  draft_by(own);
  const auto mine = FreshAnswer(config_, from_).tokens(prompt(1));
  const auto theirs = FreshAnswer(config_, other).tokens(prompt(1));
  const Drafted after = drafted_after([&] { update(other); });
  EXPECT_EQ(after.tokens, theirs);
  EXPECT_LT(after.kept, after.drafted) << "the old weights draft for the new ones";
  // It is read again there, also where the model's weights are what they were.
  const Drafted changed = drafted_after([&] {
    sleep(kWeights);
    fs::copy_file(other + "/model.safetensors", own + "/model.safetensors",
                  fs::copy_options::overwrite_existing);
    wake();
  });
  EXPECT_EQ(changed.tokens, mine);
  EXPECT_LT(changed.kept, changed.drafted);
}

// What drafts is part of all or none.
TEST_P(ResidencyDraftsTest, ADrafterThatCannotBeReadChangesNothing) {
  const std::string own = copied("own"), other = negated("other");
  draft_by(own);
  const auto mine = FreshAnswer(config_, from_).tokens(prompt(1));
  const auto away = [&] { fs::rename(own + "/model.safetensors", own + "/away"); };
  const auto there = [&] { fs::rename(own + "/away", own + "/model.safetensors"); };
  const Drafted awake = drafted_after([&] {
    away();
    EXPECT_FALSE(residency().update({.folder = other}));
    there();
  });
  EXPECT_EQ(awake.tokens, mine);
  EXPECT_EQ(awake.kept, awake.drafted);
  const Drafted woken = drafted_after([&] {
    away();
    sleep();
    EXPECT_FALSE(residency().update({.folder = other}));
    EXPECT_FALSE(residency().take_back(kAll));
    EXPECT_EQ(residency().absent(), kAll);
    there();
    wake();
  });
  EXPECT_EQ(woken.tokens, mine);
  EXPECT_EQ(woken.kept, woken.drafted);
}

TEST_P(ResidencyDraftsTest, ItsMemoryLeavesToo) {
  constexpr char kWide[] = R"({
    "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "vocab_size": 96,
    "intermediate_size": 2048, "num_hidden_layers": LAYERS, "num_attention_heads": 8,
    "num_key_value_heads": 8, "max_position_embeddings": 256, "torch_dtype": "float32"})";
  const auto with_layers = [&](const char* layers) {
    std::string config = kWide;
    return config.replace(config.find("LAYERS"), 6, layers);
  };
  const DummyFolder small("residency_drafts_small", with_layers("1")),
      large("residency_drafts_large", with_layers("4"));
  config_.model = small.path();
  config_.load_format = model::LoadFormat::kDummy;
  draft_by(large.path());
  start();
  const Event before = answer();
  const size_t awake = resident_bytes();
  const auto given = residency().give_back(kWeights);
  ASSERT_TRUE(given);
  EXPECT_GT(given->weights, size_t{75} << 20) << "5 layers of 4.2 million weights, float32";
  EXPECT_LT(resident_bytes() + (size_t{75} << 20), awake);
  ASSERT_TRUE(residency().take_back(kWeights));
  EXPECT_EQ(answer().tokens, before.tokens);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ResidencyDraftsTest, testing::Values(1, 2));

// The demo model has a module of its own, in "mtp" of its folder.
class ResidencyModuleTest : public ResidencyTest {
 protected:
  ResidencyModuleTest() {
    from_ = std::string(SKIFF_SOURCE_DIR) + "/models/demo";
    config_.model = from_;
    config_.threads = 2;
    config_.max_model_len = 256;
    config_.policy.step_seconds = std::numeric_limits<double>::infinity();
    config_.speculation = {.method = "mtp", .tokens = 2};
  }
};

TEST_F(ResidencyModuleTest, AModuleFollowsItsModel) {
  if (!fs::exists(from_ + "/mtp/model.safetensors")) GTEST_SKIP() << "no models/demo";
  const std::string other = negated("other");
  negate(other + "/mtp", "model.mtp_block.0.self_attn.o_proj.weight");
  for (const int ranks : {1, 2}) {
    config_.tensor_parallel = ranks;
    const auto theirs = FreshAnswer(config_, other).tokens(prompt(1));
    start();
    const auto mine = answer().tokens;
    ASSERT_NE(mine, theirs);
    ASSERT_TRUE(residency().give_back(kAll));
    ASSERT_TRUE(residency().take_back(kAll));
    EXPECT_EQ(answer().tokens, mine);
    const auto updated = residency().update({.folder = other});
    ASSERT_TRUE(updated) << updated.error().what;
    EXPECT_EQ(answer().tokens, theirs);
    const auto back = residency().update({.folder = from_});
    ASSERT_TRUE(back) << back.error().what;
    EXPECT_EQ(answer().tokens, mine);
  }
  // A module that is not there is said before anything changes.
  fs::remove(other + "/mtp/config.json");
  const auto mine = answer().tokens;
  const auto refused = residency().update({.folder = other});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().field, "path");
  EXPECT_THAT(refused.error().what, HasSubstr("mtp/config.json"));
  EXPECT_EQ(answer().tokens, mine);
}

TEST(WeightFolders, WhatDraftsMovesOnlyFromWithinTheModelsFolder) {
  Resolved resolved;
  resolved.model.folder = "/m/one/";
  const auto drafter_at = [&](const std::string& folder) {
    resolved.drafter = {.folder = folder, .config = {}, .part = {}, .spec = {}, .stored = {}};
    return folders_of(resolved, "/m/two").drafter;
  };
  EXPECT_EQ(drafter_at("/m/one"), "/m/two/");
  EXPECT_EQ(drafter_at("/m/one/mtp"), "/m/two/mtp");
  EXPECT_EQ(drafter_at("/m/one-small"), "/m/one-small");
  EXPECT_EQ(drafter_at("/m/one/../small"), "/m/one/../small");
  EXPECT_EQ(drafter_at("/m"), "/m");
  EXPECT_EQ(folders_of(resolved, "/m/one/").drafter, "/m") << "as at the start";
  resolved.drafter.reset();
  EXPECT_EQ(folders_of(resolved, "/m/two").drafter, "");
}

// The same files give other forms where they are kept in another dtype.
TEST(RankWeights, WeightsOfAnotherFormAreNamed) {
  EngineConfig config;
  config.model = std::string(SKIFF_SOURCE_DIR) + "/tests/golden/qwen3";
  config.device = "reference";
  config.quiet = true;
  config.speculation = {.method = "draft_model", .model = config.model};
  const model::ModelConfig model = read_model(config);
  Resolved own = resolve(config, model);
  const auto ops = make_reference_ops();
  const WeightFolders folders = folders_of(own, config.model);
  const auto load = [&] { return load_weights(own, model, {}, folders, {}, *ops); };
  const auto refusal = [&](const RankWeights& present) -> std::string {
    try {
      load_alike(present, own, model, {}, folders, *ops);
    } catch (const LoadError& error) {
      return error.what();
    }
    return "accepted";
  };
  RankWeights mixed = load();
  EXPECT_EQ(refusal(mixed), "accepted");
  mixed.drafter->buffers.pop_back();
  EXPECT_THAT(refusal(mixed), HasSubstr("the number of weights"));
  own.drafter.reset();
  const RankWeights present = load();
  EXPECT_EQ(refusal(present), "accepted");
  own.precision = uniform_precision(own.precision.act == DType::kF32 ? DType::kBF16 : DType::kF32);
  EXPECT_THAT(refusal(present), HasSubstr("they need a server of their own"));
}

}  // namespace
}  // namespace skiff::engine

// Memory that is given back and weights that are replaced on several ranks, in several replicas,
// and with what drafts: for all of them or for none, and no token differs from what one server
// that has always had these weights says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <limits>
#include <thread>

#include "engine/model_testing.h"
#include "engine/residency_testing.h"

namespace skiff::engine {
namespace {

using testing::HasSubstr;

constexpr char kWide[] = R"({
  "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "vocab_size": 96,
  "intermediate_size": 2048, "num_hidden_layers": 6, "num_attention_heads": 8,
  "num_key_value_heads": 8, "max_position_embeddings": 256, "torch_dtype": "float32"})";
constexpr size_t kMiB = size_t{1} << 20;

struct Form {
  const char* name;
  int ranks, replicas;
  const char* model = "qwen3";
  bool whole_experts = false;
  const char* device = "cpu";
  bool drafts = false;  // the model drafts for itself
};

class ResidencyGroupTest : public ResidencyTest, public testing::WithParamInterface<Form> {
 protected:
  ResidencyGroupTest() {
    from_ = std::string(SKIFF_SOURCE_DIR) + "/tests/golden/" + GetParam().model;
    config_.model = from_;
    config_.threads = 2;
    config_.device = GetParam().device;
    config_.tensor_parallel = GetParam().ranks;
    config_.replicas = GetParam().replicas;
    config_.expert_parallel = GetParam().whole_experts;
    if (GetParam().drafts)
      config_.speculation = draft::Settings{.method = "draft_model", .tokens = 2, .model = from_};
    config_.policy.step_seconds = std::numeric_limits<double>::infinity();  // nothing is measured
  }
  // What every replica says after prompt(), which is the same for all.
  Event answers() override {
    std::vector<NewSequence> two;
    for (int i = 0; i < config_.replicas; ++i) {
      two.push_back(prompt(++last_));
      two.back().replica = i;
      llm_->submit(two.back());
    }
    Event first = ends_.wait(two.front().id);
    for (const NewSequence& one : two) EXPECT_EQ(ends_.wait(one.id).tokens, first.tokens);
    return first;
  }
};

TEST_P(ResidencyGroupTest, ManyCyclesChangeNoToken) {
  start();
  const Event before = answers();
  ASSERT_EQ(before.tokens.size(), 16u);
  for (int i = 0; i < 12; ++i) {
    const Parts parts = i % 3 == 0 ? kAll : i % 3 == 1 ? kWeights : kKv;
    const auto given = residency().give_back(parts);
    ASSERT_TRUE(given) << given.error().what;
    EXPECT_EQ(residency().absent(), parts);
    EXPECT_EQ(answer().finish, Finish::kExhausted);
    const Status back = residency().take_back(parts);
    ASSERT_TRUE(back) << back.error().what;
    EXPECT_FALSE(residency().absent().any());
    const Event after = answers();
    ASSERT_EQ(after.tokens, before.tokens) << "cycle " << i;
    ASSERT_EQ(after.cached, 0) << "the prefix cache is empty";
  }
}

TEST_P(ResidencyGroupTest, UpdatedWeightsAnswerAsInAServerOfTheirOwn) { check_updates(); }

// The blocks of all ranks are found again in each replica's file after a sleep, under the same
// weights.
TEST_P(ResidencyGroupTest, TheFileIsFoundAgainUnderTheSameWeights) {
  keep_a_file();
  start();
  const Event before = answers();
  ASSERT_TRUE(residency().give_back(kAll));
  ASSERT_TRUE(residency().take_back(kAll));
  const Event after = answers();
  EXPECT_EQ(after.tokens, before.tokens);
  EXPECT_GT(after.cached, 0);
}

// A value that is not finite lies in the last rank's part of the last layer: the others have read
// theirs when it is found.
TEST_P(ResidencyGroupTest, ARankThatCannotReadKeepsAllAsTheyWere) {
  if (GetParam().whole_experts) GTEST_SKIP() << "the test knows no tensor of a certain rank there";
  config_.quantization = "wint8";
  const std::string broken = copied("broken");
  const TensorEntry last = [&] {
    const Checkpoint old(from_);
    return *old.find("model.layers.2.mlp.down_proj.weight")->entry;
  }();
  std::fstream file(broken + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(last.end - 4));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  file.write(reinterpret_cast<const char*>(&nan), 4);
  file.close();
  start();
  const Event before = answers();
  const auto awake = residency().update({.folder = broken});
  ASSERT_FALSE(awake);
  EXPECT_EQ(awake.error().field, "path");
  EXPECT_THAT(awake.error().what, HasSubstr("model.layers.2.mlp.down_proj.weight"));
  EXPECT_FALSE(residency().absent().any());
  EXPECT_EQ(answers().tokens, before.tokens);
  ASSERT_TRUE(residency().give_back(kAll));
  ASSERT_FALSE(residency().update({.folder = broken}));
  EXPECT_EQ(residency().absent(), kAll) << "what was absent stays absent";
  EXPECT_EQ(answer().finish, Finish::kExhausted);
  ASSERT_TRUE(residency().take_back(kAll));
  EXPECT_EQ(answers().tokens, before.tokens);
  EXPECT_EQ(residency().state().folder, from_);
}

// A tensor is missing when the weights are read again.
TEST_P(ResidencyGroupTest, ARankThatCannotWakeLetsTheGroupSleep) {
  const std::string here = copied("here");
  config_.model = here;
  start();
  const Event before = answers();
  ASSERT_TRUE(residency().give_back(kWeights));
  const auto rename = [&](const char* from, const char* to) {
    std::fstream file(here + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    std::string head(fs::file_size(here + "/model.safetensors"), '\0');
    file.read(head.data(), std::ssize(head));
    file.seekp(static_cast<std::streamoff>(head.find(from)));
    file << to;
  };
  rename("model.layers.2.input_layernorm", "model.layers.7.input_layernorm");
  const Status missing = residency().take_back(kWeights);
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().what, HasSubstr("input_layernorm"));
  EXPECT_EQ(residency().absent(), kWeights);
  EXPECT_EQ(answer().finish, Finish::kExhausted);
  rename("model.layers.7.input_layernorm", "model.layers.2.input_layernorm");
  ASSERT_TRUE(residency().take_back(kWeights));
  EXPECT_EQ(answers().tokens, before.tokens);
}

// The memory of all ranks leaves; that which replicas share leaves once.
TEST_P(ResidencyGroupTest, MemoryLeavesTheProcessAndComesBack) {
  const DummyFolder folder(std::string("residency_group_") + GetParam().name, kWide);
  config_.speculation.reset();
  config_.model = folder.path();
  config_.load_format = model::LoadFormat::kDummy;
  config_.expert_parallel = false;
  start();
  const Event before = answers();
  const size_t awake = resident_bytes();
  const auto given = residency().give_back(kAll);
  ASSERT_TRUE(given);
  EXPECT_GT(given->weights, 90 * kMiB) << "6 layers of 4.2 million weights, float32";
  EXPECT_LT(given->weights, 150 * kMiB) << "all of it once";
  EXPECT_GT(given->kv, kMiB);
  EXPECT_LT(resident_bytes() + 90 * kMiB, awake);
  const auto more = residency().give_back(kAll);
  EXPECT_TRUE(more && more->weights == 0 && more->kv == 0) << "nothing is left to give";
  ASSERT_TRUE(residency().take_back(kAll));
  EXPECT_EQ(answers().tokens, before.tokens);
}

TEST_P(ResidencyGroupTest, WorkWaitsForWhatRunsAnywhere) {
  start();
  std::vector<SeqId> ids;
  for (int i = 0; i < 4; ++i) {
    NewSequence sequence = prompt(1000 + static_cast<SeqId>(i));
    sequence.prompt.resize(10 + static_cast<size_t>(i));
    sequence.stop.max_tokens = 20 + 20 * i;
    ids.push_back(sequence.id);
    llm_->submit(std::move(sequence));
  }
  ASSERT_TRUE(residency().give_back(kAll));
  for (const SeqId id : ids) EXPECT_EQ(ends_.wait(id).finish, Finish::kLength);
  llm_->stop(/*drain=*/true);
  const Status late = residency().take_back(kAll);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::kCancelled);
}

// Changes and a stop at the same time: everything ends, in whatever order it comes.
TEST_P(ResidencyGroupTest, AStopDuringAChangeHangsNobody) {
  for (int i = 0; i < 10; ++i) {
    start();
    llm_->submit(prompt(++last_));
    auto changed = std::async(std::launch::async, [&] {
      for (int n = 0; n < 3; ++n)
        if (!residency().give_back(kAll) || !residency().take_back(kAll)) return false;
      return true;
    });
    auto at_once = std::async(std::launch::async, [&] { (void)residency().update({}); });
    std::this_thread::sleep_for(std::chrono::milliseconds(i));
    llm_->stop(/*drain=*/i % 2 == 0);
    changed.get();
    at_once.get();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Forms, ResidencyGroupTest,
    testing::Values(Form{.name = "TwoRanks", .ranks = 2, .replicas = 1},
                    Form{.name = "FourRanks", .ranks = 4, .replicas = 1, .device = "reference"},
                    Form{.name = "WholeExperts",
                         .ranks = 2,
                         .replicas = 1,
                         .model = "mixtral",
                         .whole_experts = true},
                    Form{.name = "TwoReplicas", .ranks = 1, .replicas = 2},
                    Form{.name = "SharedExperts",
                         .ranks = 1,
                         .replicas = 2,
                         .model = "mixtral",
                         .whole_experts = true},
                    Form{.name = "SharedExpertsWithDrafts",
                         .ranks = 1,
                         .replicas = 2,
                         .model = "mixtral",
                         .whole_experts = true,
                         .device = "reference",
                         .drafts = true},
                    Form{.name = "ReplicasOfRanks", .ranks = 2, .replicas = 2},
                    Form{.name = "RanksThatShareExperts",
                         .ranks = 2,
                         .replicas = 2,
                         .model = "mixtral",
                         .whole_experts = true}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace skiff::engine

#include "engine/residency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <future>
#include <limits>
#include <thread>

#include "engine/model_testing.h"
#include "engine/residency_testing.h"

namespace skiff::engine {
namespace {

using testing::HasSubstr;

TEST_F(ResidencyTest, ManyCyclesChangeNoToken) {
  const std::string demo = std::string(SKIFF_SOURCE_DIR) + "/models/demo";
  for (const char* device : {"reference", "cpu"}) {
    config_.device = device;
    if (config_.device == "cpu" && fs::exists(demo + "/model.safetensors")) config_.model = demo;
    start();
    const Event before = answer();
    ASSERT_EQ(before.tokens.size(), 16u);
    const int cycles = config_.device == "cpu" ? 100 : 3;
    for (int i = 0; i < cycles; ++i) {
      const Parts parts = i % 3 == 0 ? kAll : i % 3 == 1 ? kWeights : kKv;
      ASSERT_TRUE(residency().give_back(parts));
      EXPECT_EQ(residency().absent(), parts);
      const Status back = residency().take_back(parts);
      ASSERT_TRUE(back) << back.error().what;
      EXPECT_FALSE(residency().absent().any());
      const Event after = answer();
      ASSERT_EQ(after.tokens, before.tokens) << "cycle " << i;
      ASSERT_EQ(after.cached, 0) << "the prefix cache is empty";
    }
    EXPECT_GT(answer().cached, 0) << "and fills again";
  }
}

TEST_F(ResidencyTest, MemoryLeavesTheProcessAndComesBack) {
  constexpr char kWide[] = R"({
    "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "vocab_size": 97,
    "intermediate_size": 2048, "num_hidden_layers": 6, "num_attention_heads": 8,
    "num_key_value_heads": 8, "max_position_embeddings": 256, "torch_dtype": "float32"})";
  const DummyFolder folder("residency_memory", kWide);
  config_.model = folder.path();
  config_.load_format = model::LoadFormat::kDummy;
  start();
  const Event before = answer();
  const size_t awake = resident_bytes();
  const auto given = residency().give_back(kAll);
  ASSERT_TRUE(given);
  EXPECT_GT((*given).weights, size_t{90} << 20) << "6 layers of 4.2 million weights, float32";
  EXPECT_GT((*given).kv, size_t{1} << 20);
  EXPECT_LT(resident_bytes() + (size_t{90} << 20), awake);
  const auto more = residency().give_back(kAll);
  EXPECT_TRUE(more && (*more).weights == 0 && (*more).kv == 0) << "nothing is left to give";
  ASSERT_TRUE(residency().take_back(kAll));
  EXPECT_EQ(answer().tokens, before.tokens);
  EXPECT_GT(resident_bytes() + (size_t{30} << 20), awake);
  const auto refused = residency().update({.folder = folder.path()});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().what, HasSubstr("dummy weights"));
}

TEST_F(ResidencyTest, NoSequenceRunsWhileAPartIsAbsent) {
  start();
  ASSERT_TRUE(residency().give_back(kAll));
  ASSERT_TRUE(residency().take_back(kWeights));
  EXPECT_EQ(residency().absent(), kKv);
  const Event refused = answer();
  EXPECT_EQ(refused.finish, Finish::kExhausted);
  EXPECT_THAT(refused.why, HasSubstr("not in memory"));
  ASSERT_TRUE(residency().take_back(kKv));
  EXPECT_EQ(answer().finish, Finish::kLength);
}

TEST_F(ResidencyTest, WorkWaitsForWhatRuns) {
  start();
  NewSequence sequence;
  sequence.id = 1000;
  sequence.prompt = {1, 2, 3};
  sequence.stop.max_tokens = 20;
  llm_->submit(sequence);
  ASSERT_TRUE(residency().give_back(kAll));
  EXPECT_EQ(ends_.wait(1000).tokens.size(), 20u);
  llm_->stop(/*drain=*/true);
  const Status late = residency().take_back(kAll);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::kCancelled);
}

TEST_F(ResidencyTest, AWakeUpOfTheAwakeWaitsForNothing) {
  std::promise<void> go;
  const auto gone = go.get_future().share();
  llm_ = Llm::start(config_, [gone, sink = ends_.sink()](std::vector<Event> events) {
    gone.wait();  // the sequence does not end before
    sink(std::move(events));
  });
  residency_.emplace(llm_->memories());
  llm_->submit(prompt(++last_));
  auto awake = std::async(std::launch::async, [&] { return residency().take_back(kAll); });
  EXPECT_EQ(awake.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  go.set_value();
  EXPECT_TRUE(awake.get());
  EXPECT_EQ(ends_.wait(last_).tokens.size(), 16u);
}

TEST_F(ResidencyTest, FilesThatChangeWhileTheyAreReadAreNotTaken) {
  start();
  const Event mine = answer();
  const std::string other = negated("other");
  std::atomic<bool> done = false;
  std::thread trainer([&] {
    for (int64_t second = 1; !done; ++second)
      fs::last_write_time(other + "/model.safetensors",
                          fs::file_time_type(std::chrono::seconds(second)));
  });
  Result<WeightsState> updated = WeightsState{};
  for (int i = 0; i < 1000 && updated; ++i) {
    updated = residency().update({.folder = other});
    if (updated) {
      ASSERT_TRUE(residency().update({.folder = from_}));
    }
  }
  done = true;
  trainer.join();
  ASSERT_FALSE(updated);
  EXPECT_THAT(updated.error().what, HasSubstr("changed while it was read"));
  EXPECT_EQ(updated.error().field, "path");
  EXPECT_EQ(answer().tokens, mine.tokens);
  ASSERT_TRUE(residency().update({.folder = other}));
  EXPECT_NE(answer().tokens, mine.tokens);
}

TEST_F(ResidencyTest, FilesReplacedWhileTheServerStartedAreNoticed) {
  keep_a_file();
  config_.model = copied("own");
  const auto theirs = FreshAnswer(config_without_file(), negated("other")).tokens(prompt(1));
  llm_ = Llm::start(config_, ends_.sink());
  ASSERT_NE(answer().tokens, theirs);
  negate(config_.model, "model.embed_tokens.weight");
  residency_.emplace(llm_->memories());
  ASSERT_TRUE(residency().give_back(kAll));
  ASSERT_TRUE(residency().take_back(kAll));
  expect(answer(), theirs);
}

TEST_F(ResidencyTest, UpdatedWeightsAnswerAsInAServerOfTheirOwn) { check_updates(); }

TEST_F(ResidencyTest, AnUpdateTellsTheDigestOfItsWeights) {
  const std::string other = negated("other");
  start();
  const auto updated = residency().update({.folder = other, .version = "two", .digest = true});
  ASSERT_TRUE(updated) << updated.error().what;
  EXPECT_EQ((*updated).digest->tensors.size(), 35u);
  EXPECT_EQ((*updated).digest->total, weights_digest(other).total);
  EXPECT_NE((*updated).digest->total, weights_digest(from_).total);
}

TEST_F(ResidencyTest, WeightsThatDoNotFitChangeNothing) {
  start();
  const Event before = answer();
  const auto refused = [&](const WeightsUpdate& update) {
    const auto done = residency().update(update);
    EXPECT_FALSE(done);
    EXPECT_EQ(answer().tokens, before.tokens);
    return done ? Error{} : done.error();
  };
  EXPECT_THAT(refused({.folder = dir_.path() + "/none"}).what, HasSubstr("no folder"));
  const Error endless = refused({.folder = dir_.path() + "/" + std::string(300, 'x')});
  EXPECT_EQ(endless.field, "path") << "the system refuses to look for such a name";
  EXPECT_THAT(endless.what, HasSubstr("no folder"));
  const std::string wide = copied("wide");
  std::string config;
  std::getline(std::ifstream(from_ + "/config.json"), config, '\0');
  config.replace(config.find("\"intermediate_size\": 56"), 23, "\"intermediate_size\": 64");
  std::ofstream(wide + "/config.json") << config;
  const Error other = refused({.folder = wide});
  EXPECT_EQ(other.field, "path");
  EXPECT_THAT(other.what, HasSubstr("\"intermediate_size\" is 56 in this server's config.json and "
                                    "64 in that of the new weights"));
  const std::string cut = copied("cut");
  fs::resize_file(cut + "/model.safetensors", fs::file_size(cut + "/model.safetensors") - 4);
  EXPECT_THAT(refused({.folder = cut}).what, HasSubstr("model.safetensors"));
  const Error sum = refused({.folder = copied("same"), .expected = "1234"});
  EXPECT_EQ(sum.field, "checksum");
  EXPECT_THAT(sum.what, HasSubstr(weights_digest(from_).total));
  EXPECT_EQ(residency().state().updates, 0u);
  const std::string renamed = copied("renamed");
  std::fstream file(renamed + "/model.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary);
  std::string head(20000, '\0');
  file.read(head.data(), std::ssize(head));
  file.clear();
  file.seekp(static_cast<std::streamoff>(head.find("layers.1.mlp.up_proj")));
  file << "layers.7";
  file.close();
  const Error names = refused({.folder = renamed});
  EXPECT_EQ(names.field, "path");
  EXPECT_THAT(names.what, HasSubstr("layers.1.mlp.up_proj"));
}

// A value that is not finite is found while weights are read and quantized, in the last layer,
// when most of them have been read.
TEST_F(ResidencyTest, AFailureInTheMiddleKeepsTheOldVersion) {
  config_.quantization = "wint8";
  const std::string broken = copied("broken");
  const Checkpoint old(from_);
  const TensorEntry& last = *old.find("model.layers.2.mlp.down_proj.weight")->entry;
  std::fstream file(broken + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(last.end - 4));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  file.write(reinterpret_cast<const char*>(&nan), 4);
  file.close();
  start();
  const Event before = answer();
  const auto awake = residency().update({.folder = broken});
  ASSERT_FALSE(awake);
  EXPECT_THAT(awake.error().what, HasSubstr("model.layers.2.mlp.down_proj.weight"));
  EXPECT_FALSE(residency().absent().any());
  EXPECT_EQ(answer().tokens, before.tokens);
  ASSERT_TRUE(residency().give_back(kAll));
  ASSERT_FALSE(residency().update({.folder = broken}));
  EXPECT_EQ(residency().absent(), kAll) << "what was absent stays absent";
  ASSERT_TRUE(residency().take_back(kAll));
  EXPECT_EQ(answer().tokens, before.tokens);
  EXPECT_EQ(residency().state().folder, from_);
}

// The way of FastDeploy's /clear_load_weight and /update_model_weight: the same folder has other
// files when it is read again.
TEST_F(ResidencyTest, AFolderThatChangedWhileWeightsWereAbsentIsNoticed) {
  const std::string other = negated("other"), here = copied("here");
  const auto theirs = FreshAnswer(config_, other).tokens(prompt(1));
  config_.model = here;
  config_.storage_path = dir_.path() + "/cache";  // blocks of the old weights stay there
  fs::create_directories(config_.storage_path);
  config_.storage_gb = config_.swap_space_gb = 0.01;
  start();
  ASSERT_NE(answer().tokens, theirs);
  ASSERT_TRUE(residency().give_back(kWeights));
  fs::rename(other + "/model.safetensors", here + "/model.safetensors");
  ASSERT_TRUE(residency().take_back(kWeights));
  const Event after = answer();
  EXPECT_EQ(after.tokens, theirs);
  EXPECT_EQ(after.cached, 0);
  // What is missing leaves the weights absent until it is there again.
  ASSERT_TRUE(residency().give_back(kWeights));
  fs::rename(here + "/model.safetensors", here + "/away");
  const Status missing = residency().take_back(kWeights);
  ASSERT_FALSE(missing);
  EXPECT_EQ(residency().absent(), kWeights);
  EXPECT_EQ(answer().finish, Finish::kExhausted);
  fs::rename(here + "/away", here + "/model.safetensors");
  ASSERT_TRUE(residency().take_back(kWeights));
  EXPECT_EQ(answer().tokens, theirs);
}

TEST(Residency, SeveralNodesAreRefusedInOneLine) {
  Resolved resolved;
  EXPECT_TRUE(Residency::supported(resolved));
  resolved.device = {ComputeDevice::kCuda, 99};
  EXPECT_TRUE(Residency::supported(resolved)) << "the backend refuses what is not there";
  resolved.nodes.nodes = 2;
  const Status status = Residency::supported(resolved);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kUnsupported);
  EXPECT_THAT(status.error().what, HasSubstr("--ips"));
}

}  // namespace
}  // namespace skiff::engine

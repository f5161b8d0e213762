// stories260K against llama2.c's greedy stories and logits.
#include <gtest/gtest.h>
#include <skiff_test_paths.h>

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "model/single.h"
#include "tensor/device_memory.h"

namespace skiff::model {
namespace {

class StoriesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(dir_)) GTEST_SKIP() << "no reference data at " << dir_;
  }
  void expect_stories(std::unique_ptr<Ops> ops) const;
  const std::string dir_ = std::string(SKIFF_SHARED_DIR) + "/data/models/stories260K-hf";
};

void StoriesTest::expect_stories(std::unique_ptr<Ops> ops) const {
  const Json expected = read_json_file(dir_ + "/expected_greedy.json");
  const LoadedModel model = load_model(dir_, read_model_config(dir_), {.progress = {}}, *ops);
  ASSERT_FALSE(expected.at("cases").empty());
  for (const Json& story : expected.at("cases")) {
    const auto ids = story.at("all_ids").get<std::vector<int32_t>>();
    const size_t prompt = story.at("prompt_ids").size();
    comm::Mesh mesh = comm::make_solo_mesh();
    SingleSequence sequence(model, *ops, mesh, DType::kF32, static_cast<int>(ids.size()),
                            static_cast<int>(ids.size()));
    const Tensor logits = sequence.forward(ids);
    ASSERT_GT(story.at("top5").size(), 100u);
    for (size_t at = 0; at < ids.size(); ++at) {
      const float* row = logits.row<float>(static_cast<int64_t>(at));
      if (at + 1 >= prompt && at + 1 < ids.size()) {
        ASSERT_EQ(std::max_element(row, row + logits.cols()) - row, ids[at + 1])
            << "position " << at;
      }
      if (at >= story.at("top5").size()) continue;
      const Json& top = story.at("top5")[at];
      for (size_t i = 0; i < top.at("ids").size(); ++i)
        ASSERT_NEAR(row[top.at("ids")[i].get<int>()], top.at("logits")[i].get<float>(), 1e-3)
            << "position " << at;
    }
  }
}

TEST_F(StoriesTest, GreedyTokensAndLogits) { expect_stories(make_cpu_ops(2)); }

TEST_F(StoriesTest, GreedyTokensAndLogitsOnCuda) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
  expect_stories(make_cuda_ops({}));
}

}  // namespace
}  // namespace skiff::model

#include "weights/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "weights/safetensors_writer_testing.h"

namespace skiff {
namespace {

using ::testing::AllOf;
using testing::f32_bytes;
using testing::FileTensor;
using ::testing::HasSubstr;
using testing::safetensors_bytes;
using testing::write_file;

const FileTensor kA{"a", "F32", {2}, f32_bytes({1, 2})};
const FileTensor kB{"b", "F32", {1}, f32_bytes({3})};

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::temp_directory_path() /
           fmt::format("skiff_checkpoint_{}_{}", info->name(), ::getpid());
    std::filesystem::create_directories(dir_);
  }
  ~CheckpointTest() override { std::filesystem::remove_all(dir_); }

  void shard(const std::string& file, const std::vector<FileTensor>& tensors) {
    write_file(dir_ / file, safetensors_bytes(tensors));
  }
  void index(const Json& weight_map) {
    write_file(dir_ / "model.safetensors.index.json", Json{{"weight_map", weight_map}}.dump());
  }
  std::string refusal() const {
    try {
      Checkpoint checkpoint(dir_.string());
      return "accepted";
    } catch (const LoadError& e) {
      return e.what();
    }
  }
  std::filesystem::path dir_;
};

TEST_F(CheckpointTest, SingleFileWinsOverOthers) {
  shard("model.safetensors", {kA, kB});
  shard("adapter.safetensors", {kA});
  const Checkpoint checkpoint(dir_.string());
  EXPECT_EQ(checkpoint.tensors().size(), 2u);
  EXPECT_EQ(checkpoint.total_bytes(), 12u);
  float value = 0;
  std::memcpy(&value, checkpoint.find("b")->bytes.data(), sizeof(value));
  EXPECT_EQ(value, 3);
  EXPECT_EQ(checkpoint.find("c"), nullptr);
}

TEST_F(CheckpointTest, ShardsWithAndWithoutIndex) {
  shard("model-00001-of-00002.safetensors", {kA});
  shard("model-00002-of-00002.safetensors", {kB});
  EXPECT_NE(Checkpoint(dir_.string()).find("b"), nullptr);
  index({{"a", "model-00001-of-00002.safetensors"}, {"b", "model-00002-of-00002.safetensors"}});
  EXPECT_NE(Checkpoint(dir_.string()).find("b"), nullptr);
}

TEST_F(CheckpointTest, MissingShardAndMissingTensorAreNamed) {
  shard("one.safetensors", {kA});
  index({{"a", "one.safetensors"}, {"b", "two.safetensors"}});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("two.safetensors"), HasSubstr("missing")));
  index({{"a", "one.safetensors"}, {"b", "one.safetensors"}});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("\"b\""), HasSubstr("not in \"one.safetensors\"")));
}

TEST_F(CheckpointTest, IndexStaysInTheFolder) {
  shard("one.safetensors", {kA});
  for (const char* path :
       {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", "..", ".hidden", "", "a\\b"}) {
    index({{"a", path}});
    EXPECT_THAT(refusal(), HasSubstr("not a plain file name")) << path;
  }
}

TEST_F(CheckpointTest, TensorInTwoShardsIsRefused) {
  shard("one.safetensors", {kA});
  shard("two.safetensors", {kA});
  EXPECT_THAT(refusal(), HasSubstr("\"a\" is in another shard too"));
}

TEST_F(CheckpointTest, BrokenThingsNameTheFile) {
  EXPECT_THAT(refusal(), HasSubstr("no *.safetensors"));
  write_file(dir_ / "model.safetensors", "");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("model.safetensors"), HasSubstr("too few")));
  write_file(dir_ / "model.safetensors.index.json", "{\"weight_map\": {\"a\": 1}}");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("index.json"), HasSubstr("weight_map")));
  std::filesystem::remove_all(dir_);
  EXPECT_THAT(refusal(), HasSubstr("not a folder"));
}

}  // namespace
}  // namespace skiff

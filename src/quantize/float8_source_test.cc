// Checkpoints in eight-bit floats, as DeepSeek-V3 was published, to fewer bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <skiff_test_paths.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "base/load_error.h"
#include "model/golden_cases_testing.h"
#include "quantize/job.h"
#include "tensor/convert.h"
#include "weights/codes.h"
#include "weights/safetensors_writer_testing.h"

namespace skiff::quantize {
namespace {

namespace fs = std::filesystem;
using testing::FileTensor;
using ::testing::HasSubstr;

constexpr int64_t kBlock = 16;
constexpr const char* kDrafts = "model.layers.3.self_attn.o_proj";  // a module that drafts
constexpr const char* kLatent = "model.layers.1.self_attn.kv_b_proj";

struct Blocks {
  std::string codes;
  std::vector<float> scales, values;
};

uint8_t nearest_code(float x) {
  uint8_t best = 0;
  float least = std::numeric_limits<float>::infinity();
  for (int i = 0; i < 256; ++i) {
    const auto code = static_cast<uint8_t>(i);
    const auto away = std::abs(code_value(&code, DType::kF8E4M3, 0) - x);
    if (away < least) {  // not where the code is no number
      least = static_cast<float>(away);
      best = code;
    }
  }
  return best;
}

Blocks in_blocks(const std::vector<float>& w, int64_t out, int64_t in) {
  const int64_t across = (in + kBlock - 1) / kBlock, down = (out + kBlock - 1) / kBlock;
  Blocks b;
  b.scales.assign(static_cast<size_t>(across * down), 0);
  const auto scale = [&](int64_t i) -> float& {
    return b.scales[static_cast<size_t>(i / in / kBlock * across + i % in / kBlock)];
  };
  for (int64_t i = 0; i < out * in; ++i)
    scale(i) = std::max(scale(i), std::abs(w[static_cast<size_t>(i)]) / 448);
  for (int64_t i = 0; i < out * in; ++i) {
    const uint8_t code = nearest_code(w[static_cast<size_t>(i)] / scale(i));
    b.codes.push_back(static_cast<char>(code));
    b.values.push_back(
        static_cast<float>(static_cast<double>(scale(i)) * code_value(&code, DType::kF8E4M3, 0)));
  }
  return b;
}

// The tiny DeepSeek-V3 with its projections in blocks of eight-bit floats, and the same values as
// floats; both with a matrix of a module that drafts.
class Float8Source : public ::testing::Test {
 protected:
  Float8Source() {
    const std::string golden = testing::golden_dir("deepseek_v3");
    const Checkpoint checkpoint(golden);
    std::vector<FileTensor> eight, wide;
    for (const auto& [name, tensor] : checkpoint.tensors())
      add(name, read_floats(tensor), tensor.entry->shape, eight, wide);
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 0.2f);
    std::vector<float> drafts(size_t{40} * 48);
    for (float& x : drafts) x = normal(random);
    add(std::string(kDrafts) + ".weight", drafts, {40, 48}, eight, wide);
    Json config = read_json_file(golden + "/config.json");
    write("wide", config, wide);
    config["quantization_config"] = {{"quant_method", "fp8"},
                                     {"fmt", "e4m3"},
                                     {"activation_scheme", "dynamic"},
                                     {"weight_block_size", {kBlock, kBlock}}};
    write("eight", config, eight);
  }
  ~Float8Source() override { fs::remove_all(root_); }

  static void add(const std::string& name, const std::vector<float>& values,
                  const std::vector<int64_t>& shape, std::vector<FileTensor>& eight,
                  std::vector<FileTensor>& wide) {
    if (shape.size() != 2 || name.find("_proj") == name.npos) {
      eight.push_back({name, "F32", shape, testing::f32_bytes(values)});
      wide.push_back(eight.back());
      return;
    }
    const Blocks b = in_blocks(values, shape[0], shape[1]);
    eight.push_back({name, "F8_E4M3", shape, b.codes});
    eight.push_back({name + "_scale_inv",
                     "F32",
                     {(shape[0] + kBlock - 1) / kBlock, (shape[1] + kBlock - 1) / kBlock},
                     testing::f32_bytes(b.scales)});
    wide.push_back({name, "F32", shape, testing::f32_bytes(b.values)});
  }
  void write(const std::string& name, const Json& config,
             const std::vector<FileTensor>& tensors) const {
    testing::write_file(root_ / name / "config.json", config.dump());
    testing::write_file(root_ / name / "model.safetensors", testing::safetensors_bytes(tensors));
  }
  std::string dir(const std::string& name) const { return (root_ / name).string(); }

  Report quantize(const std::string& model, const std::string& out, const Request& request) const {
    const ModelFile file(dir(model));
    const auto ops = make_cpu_ops(2);
    Data data;
    std::mt19937 random(1);
    for (int i = 0; i < 20; ++i) {
      Sequence& sequence = (i < 16 ? data.calibration : data.heldout).emplace_back();
      for (int t = 0; t < 24; ++t) sequence.tokens.push_back(static_cast<int32_t>(random() % 112));
    }
    return quantize_model(file, settle(request), data, {.out = root_ / out, .progress = {}}, *ops);
  }

  fs::path root_ = fs::temp_directory_path() / fmt::format("skiff_float8_{}", ::getpid());
};

std::string bytes_of(const Checkpoint& checkpoint, const std::string& name) {
  const StoredTensor* tensor = checkpoint.find(name);
  if (!tensor) return name + " is missing";
  return {reinterpret_cast<const char*>(tensor->bytes.data()), tensor->bytes.size()};
}

Request request_for(const std::string& to) {
  return {.to = to, .layout = "compressed-tensors", .group_size = 16, .threads = 2};
}

TEST_F(Float8Source, BecomesWhatItsValuesBecome) {
  for (const char* to : {"w4a16", "gptq"}) {
    const std::string a = fmt::format("{}-eight", to), b = fmt::format("{}-wide", to);
    const Report eight = quantize("eight", a, request_for(to));
    const Report wide = quantize("wide", b, request_for(to));
    EXPECT_EQ(eight.rounded_again, eight.units);
    EXPECT_EQ(wide.rounded_again, 0);
    EXPECT_EQ(eight.quality->kl, wide.quality->kl);
    EXPECT_GT(eight.quality->kl, 0);
    const Checkpoint ours(dir(a)), theirs(dir(b));
    int compared = 0;
    for (const auto& [name, tensor] : theirs.tensors()) {
      if (!name.ends_with(".weight_packed") && !name.ends_with(".weight_scale")) continue;
      EXPECT_EQ(bytes_of(ours, name), bytes_of(theirs, name)) << name;
      ++compared;
    }
    EXPECT_EQ(compared, 2 * eight.units);
  }
}

TEST_F(Float8Source, WhatStaysIsPassedThroughBitForBit) {
  Request request = request_for("w4a16");
  request.ignore = {"model.layers.0.self_attn.o_proj"};
  const Report report = quantize("eight", "out", request);
  EXPECT_EQ(report.passed, 5);  // kv_b_proj of three layers, what is ignored, what drafts
  EXPECT_EQ(report.widened, 0);
  const Checkpoint before(dir("eight")), after(dir("out"));
  for (const std::string module : {kLatent, kDrafts, "model.layers.0.self_attn.o_proj"}) {
    EXPECT_EQ(bytes_of(after, module + ".weight"), bytes_of(before, module + ".weight"));
    EXPECT_EQ(bytes_of(after, module + ".weight_scale"),
              bytes_of(before, module + ".weight_scale_inv"));
    EXPECT_EQ(after.find(module + ".weight_scale_inv"), nullptr);
  }
}

// The words and zero points of GPTQ have no other weights beside them.
TEST_F(Float8Source, WhatALayoutHasNoPlaceForBecomesBfloat16) {
  Request request = request_for("gptq");
  request.layout = "gptq";
  request.ignore = {"re:.*mlp.*", "re:.*(kv_a_proj_with_mqa|o_proj)$"};
  const Report report = quantize("eight", "out", request);
  EXPECT_EQ(report.passed, 0);
  EXPECT_EQ(report.rounded_again, 6);
  const Checkpoint before(dir("wide")), after(dir("out"));
  const std::string name = std::string(kLatent) + ".weight";
  ASSERT_EQ(after.find(name)->entry->dtype, "BF16");
  const auto exact = read_floats(*before.find(name)), now = read_floats(*after.find(name));
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_EQ(now[i], to_float(to_bf16(exact[i])));
  for (const auto& [stored, tensor] : after.tensors())
    EXPECT_NE(tensor.entry->dtype, "F8_E4M3") << stored;
}

TEST_F(Float8Source, FactorsCountWhatTheyChange) {
  const Report report = quantize("eight", "out", request_for("w4a8"));
  EXPECT_EQ(report.passed + report.widened, 4);
  EXPECT_GE(report.passed, 1);  // no factor reaches what drafts
}

TEST_F(Float8Source, EightBitsAreNotRoundedToEightOthers) {
  for (const char* to : {"fp8", "fp8-block", "w8a16", "a8w8"}) {
    try {
      quantize("eight", "out", request_for(to));
      ADD_FAILURE() << to << " was accepted";
    } catch (const LoadError& e) {
      EXPECT_THAT(e.what(), HasSubstr("8-bit floats already")) << to;
    }
  }
  EXPECT_FALSE(fs::exists(root_ / "out"));
  EXPECT_THROW(ModelFile(std::string(SKIFF_SOURCE_DIR) + "/tests/quantized/autofp8"), LoadError);
}

}  // namespace
}  // namespace skiff::quantize

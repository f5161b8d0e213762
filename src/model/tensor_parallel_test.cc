// Every family cut among ranks, as threads with an Ops each, and every mixture with whole experts
// on each rank: logits within the bounds of golden_test.cc, the same bits on all ranks and in any
// pieces of the prompt.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "arch/shard.h"
#include "model/golden_cases_testing.h"
#include "model/single.h"

namespace skiff::model {
namespace {

using testing::Golden;
using testing::golden_dir;

using Logits = std::vector<float>;

struct Run {
  std::vector<Logits> ranks;  // all rows, as each rank has gathered them
};

// All rows' logits, the prompt fed in pieces of these sizes, the last repeated.
Logits run_rank(const LoadedModel& model, Ops& ops, comm::Mesh& mesh, DType act,
                std::span<const int32_t> tokens, const std::vector<size_t>& pieces) {
  const int length = static_cast<int>(tokens.size());
  SingleSequence sequence(model, ops, mesh, act, length, length);
  Logits all;
  for (size_t i = 0; !tokens.empty(); ++i) {
    const size_t n = std::min(tokens.size(), pieces[std::min(i, pieces.size() - 1)]);
    const Tensor logits = sequence.forward(tokens.first(n));
    all.insert(all.end(), logits.as<float>(), logits.as<float>() + logits.elements());
    tokens = tokens.subspan(n);
  }
  return all;
}

// A group that has loaded a model.
class Group {
 public:
  Group(const std::string& dir, int size, LoadOptions options, const ModelConfig& config)
      : act_(options.precision.act), meshes_(comm::make_thread_meshes(size)) {
    for (int rank = 0; rank < size; ++rank) {
      options.part = {.rank = rank, .size = size};
      ops_.push_back(make_cpu_ops(1 + rank % 2));
      models_.push_back(load_model(dir, config, options, *ops_.back()));
    }
  }
  // Returns the logits, which all ranks have gathered alike.
  Logits logits(std::span<const int32_t> tokens, const std::vector<size_t>& pieces) {
    std::vector<Logits> got(models_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < models_.size(); ++rank)
      threads.emplace_back([&, rank] {
        got[rank] = run_rank(models_[rank], *ops_[rank], meshes_[rank], act_, tokens, pieces);
      });
    for (std::thread& thread : threads) thread.join();
    for (const Logits& other : got) EXPECT_EQ(other, got[0]);
    return got[0];
  }
  const std::vector<LoadedModel>& models() const { return models_; }

 private:
  DType act_;
  std::vector<comm::Mesh> meshes_;
  std::vector<std::unique_ptr<Ops>> ops_;
  std::vector<LoadedModel> models_;
};

LoadOptions as(DType act) { return {.precision = uniform_precision(act), .progress = {}}; }

float largest_difference(const Logits& a, const Logits& b) {
  EXPECT_EQ(a.size(), b.size());
  float worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float d = std::abs(a[i] - b[i]);
    worst = d <= worst ? worst : d;  // NaN is kept
  }
  return worst;
}

// The sizes of at most four that fit a model.
std::vector<int> fitting(const ModelSpec& spec) {
  std::vector<int> sizes;
  for (const int size : {2, 3, 4})
    if (shard(spec, 0, size)) sizes.push_back(size);
  return sizes;
}

struct Case {
  std::string golden;
  Moe::Deal deal;
};

std::string text_of(const Case& c) {
  return c.golden + (c.deal == Moe::kWhole ? "_whole_experts" : "");
}
void PrintTo(const Case& c, std::ostream* to) { *to << text_of(c); }

// The configuration of a folder whose routed experts ranks share in that way.
ModelConfig config_of(const std::string& dir, Moe::Deal deal) {
  ModelConfig config = read_model_config(dir);
  if (deal == Moe::kWhole) deal_experts_whole(config.spec);
  return config;
}

class TensorParallelTest : public ::testing::TestWithParam<Case> {
 protected:
  static std::string torch_twin(const std::string& name) {
    return name.ends_with("_paddle") ? name.substr(0, name.size() - 7) : name;
  }
  const std::string dir_ = golden_dir(GetParam().golden);
  const ModelConfig config_ = config_of(dir_, GetParam().deal);
  const Golden golden_ = testing::read_golden(torch_twin(GetParam().golden));
};

TEST_P(TensorParallelTest, F32LogitsInAnyPieces) {
  const float bound = 8 * golden_.sensitivity * std::sqrt(128.0f) * 0x1p-24f;
  const Logits alone =
      Group(dir_, 1, as(DType::kF32), config_).logits(golden_.prompt, {golden_.prompt.size()});
  for (const int size : fitting(config_.spec)) {
    SCOPED_TRACE(fmt::format("{} ranks", size));
    Group group(dir_, size, as(DType::kF32), config_);
    const Logits whole = group.logits(golden_.prompt, {golden_.prompt.size()});
    EXPECT_LE(largest_difference(whole, golden_.logits), bound);
    EXPECT_LE(largest_difference(whole, alone), bound);
    EXPECT_EQ(group.logits(golden_.prompt, {1}), whole);
    EXPECT_EQ(group.logits(golden_.prompt, {7, 64, 3}), whole);
  }
}

// Rows are judged as in golden_test.cc. A rank's part of a sum is rounded to bf16 by itself.
TEST_P(TensorParallelTest, Bf16Logits) {
  for (const int size : fitting(config_.spec)) {
    SCOPED_TRACE(fmt::format("{} ranks", size));
    Group group(dir_, size, as(DType::kBF16), config_);
    const Logits whole = group.logits(golden_.prompt, {golden_.prompt.size()});
    EXPECT_EQ(group.logits(golden_.prompt, {2, 64, 9}), whole);
    ASSERT_EQ(whole.size(), golden_.logits.size());
    const size_t vocab = whole.size() / golden_.prompt.size();
    for (size_t row = 0; row < golden_.prompt.size(); ++row) {
      double squares = 0;
      for (size_t i = row * vocab; i < (row + 1) * vocab; ++i)
        squares += std::pow(static_cast<double>(whole[i]) - golden_.logits[i], 2);
      EXPECT_LE(std::sqrt(squares / static_cast<double>(vocab)), 2 * golden_.bf16_rows[row])
          << "row " << row;
    }
  }
}

// Parameters that are cut are there once in a group, the others on every rank.
TEST_P(TensorParallelTest, RanksAreSmallerThanTheWhole) {
  const Group alone(dir_, 1, as(DType::kF32), config_);
  for (const int size : fitting(config_.spec)) {
    const Group group(dir_, size, as(DType::kF32), config_);
    size_t sum = 0;
    for (const LoadedModel& model : group.models()) {
      EXPECT_LT(model.bytes, alone.models()[0].bytes);
      sum += model.bytes;
    }
    EXPECT_GE(sum, alone.models()[0].bytes);
  }
}

// A random matrix is the same one however it is cut.
TEST_P(TensorParallelTest, DummyWeightsAreTheSameModel) {
  LoadOptions options = as(DType::kF32);
  options.format = LoadFormat::kDummy;
  options.dummy_seed = 3;
  const Logits alone = Group(dir_, 1, options, config_).logits(golden_.prompt, {16});
  const auto [low, high] = std::ranges::minmax(alone);
  for (const int size : fitting(config_.spec)) {
    Group group(dir_, size, options, config_);
    EXPECT_LE(largest_difference(group.logits(golden_.prompt, {16}), alone), 1e-3f * (high - low))
        << size << " ranks";
  }
}

bool is_mixture(const ModelSpec& spec) {
  return std::ranges::any_of(
      spec.layers, [](const Layer& layer) { return std::holds_alternative<Moe>(layer.ffn); });
}

// Cuts by width cannot share 21 columns; whole experts need not be cut. Five experts among two
// ranks are three and two.
TEST(WholeExperts, NeedNoWidthThatDivides) {
  const std::string dir = golden_dir("qwen3_moe");
  ModelConfig config = read_model_config(dir);
  for (Layer& layer : config.spec.layers)
    if (auto* moe = std::get_if<Moe>(&layer.ffn)) {
      moe->width = 21;
      moe->router.experts = 5;
    }
  EXPECT_TRUE(fitting(config.spec).empty());
  deal_experts_whole(config.spec);
  EXPECT_EQ(fitting(config.spec), (std::vector<int>{2, 4}));
  LoadOptions options = as(DType::kF32);
  options.format = LoadFormat::kDummy;
  const std::vector<int32_t> prompt = {5, 9, 2, 77, 31, 4, 50, 8};
  const Logits alone = Group(dir, 1, options, config).logits(prompt, {8});
  const auto [low, high] = std::ranges::minmax(alone);
  for (const int size : {2, 4}) {
    Group group(dir, size, options, config);
    const Logits whole = group.logits(prompt, {8});
    EXPECT_LE(largest_difference(whole, alone), 1e-3f * (high - low));
    EXPECT_EQ(group.logits(prompt, {1}), whole);
    int experts = 0;
    for (const LoadedModel& model : group.models())
      experts += std::get<Moe>(model.spec.layers.back().ffn).router.here();
    EXPECT_EQ(experts, 5);
  }
}

// Experts that are quantized while they are loaded are rounded as on one rank, whatever the format,
// since none is cut; attention is left as it is. Formats that round activations, too, would round
// last digits of attention to another side.
TEST(WholeExperts, AreQuantizedAsOnOneRank) {
  for (const char* golden : {"mixtral", "qwen3_moe", "ernie45_moe", "deepseek_v3"}) {
    const std::string dir = golden_dir(golden);
    const Golden expected = testing::read_golden(golden);
    const float bound = 8 * expected.sensitivity * std::sqrt(128.0f) * 0x1p-24f;
    ModelConfig config = config_of(dir, Moe::kWhole);
    for (const Scheme& scheme : schemes()) {
      if (scheme.format.input || !make_cpu_ops(1)->multiplies(scheme.format)) continue;
      SCOPED_TRACE(fmt::format("{} of {}", scheme.name, golden));
      LoadOptions options = as(DType::kF32);
      options.schemes =
          choose_schemes("", fmt::format(R"({{"experts": "{}"}})", scheme.name), config.spec);
      const Logits alone = Group(dir, 1, options, config).logits(expected.prompt, {64});
      EXPECT_NE(alone, expected.logits);
      Group group(dir, 2, options, config);
      const Logits whole = group.logits(expected.prompt, {64});
      EXPECT_LE(largest_difference(whole, alone), bound);
      EXPECT_EQ(group.logits(expected.prompt, {1}), whole);
    }
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const bool paddle : {false, true})
    for (const std::string& name : testing::golden_names(paddle)) {
      cases.push_back({name, Moe::kSlices});
      if (is_mixture(read_model_config(golden_dir(name)).spec))
        cases.push_back({name, Moe::kWhole});
    }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, TensorParallelTest, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return text_of(info.param); });

}  // namespace
}  // namespace skiff::model

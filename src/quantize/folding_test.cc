// What is folded changes weights and not what the layer computes.
#include "quantize/folding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "model/golden_cases_testing.h"
#include "ops/ops.h"
#include "quantize/shift.h"

namespace skiff::quantize {
namespace {

Stream random_stream(int64_t hidden) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 1);
  Stream stream(6, Matrix(24, hidden));
  for (Matrix& rows : stream)
    for (float& x : rows.values) x = normal(random);
  return stream;
}

// Every stage of one layer, folded as a job folds it.
Folded fold_all(const Settings& settings, const LayerMap& map, LayerValues& values,
                const ModelSpec& spec, Stream stream, Ops& ops) {
  LayerRunner runner(map, values, spec, ops);
  Folding folding(settings, map, values, spec, ops);
  for (const auto& stage : stages_of(map)) {
    Inputs inputs(map);
    runner.run(
        stream,
        [&](size_t linear, int64_t expert, const float* rows, int64_t count) {
          if (std::ranges::find(stage, linear) != stage.end())
            inputs.add(linear, expert, rows, count);
        },
        stage.back());
    folding.fold(stage, inputs);
    runner.refresh_all();
  }
  return folding.folded();
}

struct Sizes {
  double difference = 0, whole = 0;
};
Sizes compare(const Stream& a, const Stream& b) {
  Sizes sizes;
  for (size_t s = 0; s < a.size(); ++s)
    for (size_t i = 0; i < a[s].values.size(); ++i) {
      sizes.difference = std::max(sizes.difference,
                                  std::abs(static_cast<double>(a[s].values[i] - b[s].values[i])));
      sizes.whole = std::max(sizes.whole, std::abs(static_cast<double>(a[s].values[i])));
    }
  return sizes;
}

// Enlarges the first value of each head where values are rows of a plain weight, so that there is
// something to fold. Returns where that is.
const float* enlarge_latent_values(const LayerMap& map, LayerValues& values) {
  for (size_t i = 0; i < map.plains.size(); ++i)
    if (const model::Slot* value = map.plains[i].stack("value")) {
      float* row = values.plains[i].data() + value->heads->first * value->in;
      const int64_t stride = value->heads->each * value->in;
      for (int64_t h = 0; h < value->experts; ++h)
        for (int64_t c = 0; c < value->in; ++c) row[h * stride + c] *= 50;
      return row;
    }
  return nullptr;
}

struct Case {
  std::string model, to;
  bool shift = false;
};

class Foldings : public ::testing::TestWithParam<Case> {};

// Checkpoints in float32: factors and shifts round values of the stream to about 1e-7 of their size
// a few times, and sums over some hundred products make of that 1e-5 at most.
TEST_P(Foldings, LeaveWhatTheLayerComputes) {
  const Case& c = GetParam();
  const ModelFile file(testing::golden_dir(c.model));
  const Settings settings =
      settle({.to = c.to, .layout = "compressed-tensors", .group_size = 16, .shift = c.shift});
  const auto ops = make_cpu_ops(2);
  const LayerMap map = file.layer(1);
  LayerValues values = read_layer(map);
  if (c.shift) {
    add_shift_biases(map, values);
    for (float& bias : values.biases[map.linear("qkv")->pieces[2].unit]) bias += 7;
  }
  const float* enlarged = enlarge_latent_values(map, values);
  const float enlarged_before = enlarged ? *enlarged : 0;
  Stream before = random_stream(file.spec().hidden), after = before;
  const Stream entering = before;
  LayerRunner(map, values, file.spec(), *ops).run(before);
  const Folded folded = fold_all(settings, map, values, file.spec(), entering, *ops);
  LayerRunner(map, values, file.spec(), *ops).run(after);
  EXPECT_GT(folded.kept, 0);
  EXPECT_EQ(folded.shifts, c.shift ? 1 : 0);
  const Sizes sizes = compare(before, after);
  EXPECT_LT(sizes.difference, 1e-5 * sizes.whole);
  if (enlarged) {
    EXPECT_LE(std::abs(*enlarged), std::abs(enlarged_before) / 2);
  }
  if (!c.shift) return;
  for (const float bias : values.biases[map.linear("qkv")->pieces[2].unit])
    EXPECT_LT(std::abs(bias), 7) << "an offset of 7 is subtracted";
}

INSTANTIATE_TEST_SUITE_P(
    All, Foldings,
    ::testing::Values(Case{"llama", "a8w8"}, Case{"llama", "awq"}, Case{"llama", "a8w8", true},
                      Case{"llama_linear_bias", "a8w8", true}, Case{"ernie45_bias", "a8w8", true},
                      Case{"qwen3", "w4a8", true}, Case{"qwen3_moe", "awq"},
                      Case{"deepseek_v3", "a8w8"}, Case{"deepseek_v3", "awq"},
                      Case{"deepseek_v2_greedy", "a8w8"}),
    [](const auto& info) {
      return info.param.model + "_" + info.param.to + (info.param.shift ? "_shift" : "");
    });

}  // namespace
}  // namespace skiff::quantize

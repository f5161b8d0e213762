// Every family against transformers' logits (tools/golden/make_golden.py), on every backend.
//
// Tolerances. A dot product of K terms rounded to `u` at each addition behaves like an exact one
// whose terms were changed by about sqrt(K) * u relative to their size; storing an activation is
// one more change of u. expected.st holds how far the logits move per unit of random relative
// change of all weights ("sensitivity", the largest logit of four draws), so rounding moves them
// by about sensitivity * sqrt(K) * u, and two evaluations differ by at most twice that. K <= 128
// here. The largest of 83 * 112 logits may be some 4 times what four draws showed.
//   f32:  u = 2^-24: 8 * sensitivity * sqrt(128) * 2^-24.
//   bf16: sums are f32, so only storing counts: weights, which are rounded as they are, and
//         activations, whose errors are uniform within half a step of bf16. expected.st holds for
//         each row the largest root mean square change of its logits in 128 evaluations with such
//         errors (tools/golden/bf16_noise.py). An evaluation of ours is one more, so a row exceeds
//         that largest change with probability 1/129, and twice that change only if its errors are
//         of another kind. Routers are not rounded there: one whose weights are rounded chooses
//         other experts in rows that no draw shows to be near a tie.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/golden_cases_testing.h"
#include "model/single.h"
#include "tensor/device_memory.h"

namespace skiff::model {
namespace {

using testing::Golden;
using testing::golden_dir;

struct Backend {
  const char* name;
  std::unique_ptr<Ops> (*make)();
};
void PrintTo(const Backend& backend, std::ostream* to) { *to << backend.name; }
std::vector<Backend> backends() {
  std::vector<Backend> all = {{"reference", [] { return make_reference_ops(); }},
                              {"cpu", [] { return make_cpu_ops(2); }}};
  if (num_cuda_devices() > 0) all.push_back({"cuda", [] { return make_cuda_ops({}); }});
  return all;
}

LoadedModel load(const std::string& name, Ops& ops, const LoadOptions& options) {
  return load_model(golden_dir(name), read_model_config(golden_dir(name)), options, ops);
}

LoadedModel load(const std::string& name, Ops& ops, DType compute) {
  return load(name, ops, {.precision = uniform_precision(compute), .progress = {}});
}

// All rows' logits, the prompt fed in pieces of these sizes, the last repeated.
std::vector<float> run(const LoadedModel& model, Ops& ops, DType act,
                       std::span<const int32_t> tokens, std::vector<size_t> pieces) {
  comm::Mesh mesh = comm::make_solo_mesh();
  SingleSequence sequence(model, ops, mesh, act, static_cast<int>(tokens.size()),
                          static_cast<int>(tokens.size()));
  std::vector<float> all;
  for (size_t i = 0; !tokens.empty(); ++i) {
    const size_t n = std::min(tokens.size(), pieces[std::min(i, pieces.size() - 1)]);
    const Tensor logits = sequence.forward(tokens.first(n));
    all.insert(all.end(), logits.as<float>(), logits.as<float>() + logits.elements());
    tokens = tokens.subspan(n);
  }
  return all;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float worst = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float d = std::abs(a[i] - b[i]);
    worst = d <= worst ? worst : d;  // NaN is kept
  }
  return worst;
}

double deviation(std::span<const float> x) {
  double sum = 0, squares = 0;
  for (float v : x) sum += v, squares += static_cast<double>(v) * v;
  const auto n = static_cast<double>(x.size());
  return std::sqrt(squares / n - sum / n * (sum / n));
}

// The root mean square difference of each row.
std::vector<double> row_errors(const std::vector<float>& a, const std::vector<float>& b,
                               size_t vocab) {
  EXPECT_EQ(a.size(), b.size());
  std::vector<double> errors;
  for (size_t at = 0; at + vocab <= std::min(a.size(), b.size()); at += vocab) {
    double squares = 0;
    for (size_t i = at; i < at + vocab; ++i)
      squares += std::pow(static_cast<double>(a[i]) - b[i], 2);
    errors.push_back(std::sqrt(squares / static_cast<double>(vocab)));
  }
  return errors;
}

void expect_bf16_rows(const std::vector<float>& logits, const Golden& golden) {
  const size_t rows = golden.prompt.size(), vocab = golden.logits.size() / rows;
  const std::vector<double> errors = row_errors(logits, golden.logits, vocab);
  ASSERT_EQ(errors.size(), rows);
  ASSERT_EQ(golden.bf16_rows.size(), rows);
  for (size_t r = 0; r < rows; ++r) EXPECT_LE(errors[r], 2 * golden.bf16_rows[r]) << "row " << r;
}

// Bounds that no answer could break would judge nothing.
void expect_bounds_judge(const Golden& golden) {
  std::vector<float> bounds = golden.bf16_rows;
  std::ranges::nth_element(bounds, bounds.begin() + std::ssize(bounds) / 2);
  EXPECT_LT(2 * bounds[bounds.size() / 2], 0.2 * deviation(golden.logits));
}

class GoldenTest : public ::testing::TestWithParam<std::tuple<std::string, Backend>> {
 protected:
  std::string name() const { return std::get<0>(GetParam()); }
  std::unique_ptr<Ops> ops_ = std::get<1>(GetParam()).make();
};

TEST_P(GoldenTest, F32LogitsInAnyPieces) {
  const Golden golden = testing::read_golden(name());
  const LoadedModel model = load(name(), *ops_, DType::kF32);
  const float bound = 8 * golden.sensitivity * std::sqrt(128.0f) * 0x1p-24f;
  EXPECT_LT(bound, 0.01 * deviation(golden.logits)) << "a test that cannot fail";

  const auto whole = run(model, *ops_, DType::kF32, golden.prompt, {golden.prompt.size()});
  EXPECT_LE(largest_difference(whole, golden.logits), bound);
  for (const std::vector<size_t>& pieces : {std::vector<size_t>{1}, {3, 7, 61, 5}}) {
    const auto cut = run(model, *ops_, DType::kF32, golden.prompt, pieces);
    if (ops_->batch_invariant()) {
      EXPECT_EQ(cut, whole);
    } else {
      EXPECT_LE(largest_difference(cut, golden.logits), bound);
    }
  }
}

TEST_P(GoldenTest, F32GreedyContinuation) {
  const Golden golden = testing::read_golden(name());
  const LoadedModel model = load(name(), *ops_, DType::kF32);
  const size_t all = golden.prompt.size() + golden.greedy.size();
  comm::Mesh mesh = comm::make_solo_mesh();
  SingleSequence sequence(model, *ops_, mesh, DType::kF32, static_cast<int>(all),
                          static_cast<int>(all));
  Tensor logits = sequence.forward(golden.prompt);
  std::vector<int32_t> said;
  while (said.size() < golden.greedy.size()) {
    const float* last = logits.row<float>(logits.rows() - 1);
    said.push_back(static_cast<int32_t>(std::max_element(last, last + logits.cols()) - last));
    logits = sequence.forward(std::span(said).last(1));
  }
  EXPECT_EQ(said, golden.greedy);
}

TEST_P(GoldenTest, Bf16Logits) {
  const Golden golden = testing::read_golden(name());
  const LoadedModel model = load(name(), *ops_, DType::kBF16);
  expect_bounds_judge(golden);
  const auto whole = run(model, *ops_, DType::kBF16, golden.prompt, {golden.prompt.size()});
  expect_bf16_rows(whole, golden);
  const auto cut = run(model, *ops_, DType::kBF16, golden.prompt, {2, 64, 9});
  if (ops_->batch_invariant()) {
    EXPECT_EQ(cut, whole);
  } else {
    expect_bf16_rows(cut, golden);
  }
}

// Rows of gates that rounding to bf16 would confuse: the golden test above then judges routers.
TEST(GoldenRouters, StayFloat32) {
  const std::string name = "ernie45_moe_bf16_f32gate";
  const auto ops = make_cpu_ops(1);
  const LoadedModel model = load(name, *ops, DType::kBF16);
  const std::vector<LayerWeights>& layers = model.weights.layers;
  EXPECT_EQ(std::get<DenseWeights>(layers[0].ffn).gate_up.weight.dtype, DType::kBF16);
  for (size_t i = 1; i < layers.size(); ++i) {
    const auto& moe = std::get<MoeWeights>(layers[i].ffn);
    EXPECT_EQ(moe.router.weight.dtype, DType::kF32);
    EXPECT_EQ(moe.router_bias.dtype, DType::kF32);
    EXPECT_EQ(moe.down.weight.dtype, DType::kBF16);
  }
}

// However many threads read, and however little each at a time.
TEST_P(GoldenTest, ReadInPieces) {
  const Golden golden = testing::read_golden(name());
  const auto logits = [&](int threads, size_t chunk_bytes) {
    const LoadedModel model = load(name(), *ops_,
                                   {.precision = uniform_precision(DType::kBF16),
                                    .progress = {},
                                    .threads = threads,
                                    .chunk_bytes = chunk_bytes});
    return run(model, *ops_, DType::kBF16, golden.prompt, {golden.prompt.size()});
  };
  const auto whole = logits(1, size_t{1} << 30);
  EXPECT_EQ(logits(1, 1), whole);
  EXPECT_EQ(logits(3, 1), whole);
  EXPECT_EQ(logits(8, 1000), whole);
}

std::string case_name(const ::testing::TestParamInfo<std::tuple<std::string, Backend>>& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTest,
                         ::testing::Combine(::testing::ValuesIn(testing::golden_names(false)),
                                            ::testing::ValuesIn(backends())),
                         case_name);

class PaddleLayoutTest : public GoldenTest {};

TEST_P(PaddleLayoutTest, EqualsTorchLayoutBitForBit) {
  const std::string torch = name().substr(0, name().size() - std::string("_paddle").size());
  const Golden golden = testing::read_golden(torch);
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const LoadedModel ours = load(name(), *ops_, compute), theirs = load(torch, *ops_, compute);
    EXPECT_EQ(run(ours, *ops_, compute, golden.prompt, {40}),
              run(theirs, *ops_, compute, golden.prompt, {40}));
  }
}

INSTANTIATE_TEST_SUITE_P(All, PaddleLayoutTest,
                         ::testing::Combine(::testing::ValuesIn(testing::golden_names(true)),
                                            ::testing::ValuesIn(backends())),
                         case_name);

}  // namespace
}  // namespace skiff::model

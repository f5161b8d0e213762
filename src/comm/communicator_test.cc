#include "comm/communicator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace skiff::comm {
namespace {

constexpr int kRows = 3, kCols = 40, kValues = kRows * kCols;

std::vector<float> random_values(uint64_t seed, size_t n) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(rng);
  return values;
}

Tensor rows_of(std::vector<float>& values) {
  return host_tensor(values.data(), DType::kF32, {kRows, kCols});
}

TEST(SoloGroup, IsAGroupOfOne) {
  const Mesh mesh = make_solo_mesh();
  EXPECT_EQ(mesh.tp->rank(), 0);
  EXPECT_EQ(mesh.tp->size(), 1);
}

TEST(SoloGroup, SumsAndGathersWhatItHas) {
  const auto ops = make_reference_ops();
  const auto solo = make_solo();
  std::vector<float> x = random_values(1, kValues), out = random_values(2, kValues);
  const std::vector<float> before = x;
  solo->all_reduce(rows_of(x), *ops);
  EXPECT_EQ(x, before);
  solo->all_gather(rows_of(out), rows_of(x), *ops);
  EXPECT_EQ(out, before);
  solo->all_gather(rows_of(x), rows_of(x), *ops);
  EXPECT_EQ(x, before);
}

// A group whose ranks all have the same values, asked as a decoder asks.
class Doubling final : public Communicator {
 public:
  int rank() const override { return 1; }
  int size() const override { return 2; }
  void all_reduce(Tensor x, Ops& ops) override { ops.add(x, x); }
  void all_gather(Tensor, Tensor, Ops&) override { FAIL() << "nobody asks for it"; }
};

TEST(Communicator, ASumOverRanksIsAddedBeforeTheNorm) {
  const auto ops = make_reference_ops();
  std::vector<float> weight = random_values(3, kCols);
  const Norm norm{.weight = host_tensor(weight.data(), DType::kF32, {kCols}), .eps = 1e-5f};
  std::vector<float> delta = random_values(4, kValues), twice = delta;
  for (float& value : twice) value *= 2;
  std::vector<float> residual = random_values(5, kValues), want_residual = residual;
  std::vector<float> out(delta.size(), -1), want(delta.size(), -2);
  Doubling().reduce_add_norm(rows_of(out), rows_of(residual), rows_of(delta), norm,
                             ResidualUse::kAny, *ops);
  ops->add_norm(rows_of(want), rows_of(want_residual), rows_of(twice), norm);
  EXPECT_EQ(out, want);
  EXPECT_EQ(residual, want_residual);
}

}  // namespace
}  // namespace skiff::comm

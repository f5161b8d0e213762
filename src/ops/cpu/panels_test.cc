#include "ops/cpu/panels.h"

#include <gtest/gtest.h>

#include <random>

#include "ops/cpu/cpu_features.h"
#include "ops/ops.h"
#include "tensor/convert.h"
#include "tensor/memory.h"

namespace skiff::cpu {
namespace {

// Where panels.h says that a weight lies.
float element(const std::byte* packed, const PanelShape& s, int64_t expert, int64_t o, int64_t i) {
  const std::byte* base = packed + expert * s.expert_bytes();
  const int64_t panel = o / kPanel * s.panel_elements(), j = o % kPanel;
  if (s.dtype == DType::kF32) return reinterpret_cast<const float*>(base)[panel + i * kPanel + j];
  return to_float(reinterpret_cast<const BF16*>(base)[panel + (i / 2 * kPanel + j) * 2 + i % 2]);
}

void put(const Tensor& t, int64_t at, float x) {
  if (t.dtype == DType::kF32)
    t.as<float>()[at] = x;
  else if (t.dtype == DType::kF16)
    t.as<F16>()[at] = to_f16(x);
  else
    t.as<BF16>()[at] = to_bf16(x);
}
float get(const Tensor& t, int64_t at) {
  if (t.dtype == DType::kF32) return t.as<float>()[at];
  if (t.dtype == DType::kF16) return to_float(t.as<F16>()[at]);
  return to_float(t.as<BF16>()[at]);
}

TEST(Panels, HoldEveryWeightAndZerosAround) {
  ThreadPool pool(3);
  std::mt19937 rng(5);
  for (Isa isa : available_isas())
    for (DType from : {DType::kF32, DType::kF16, DType::kBF16})
      for (DType to : {DType::kF32, DType::kBF16})
        for (int64_t experts : {1, 3})
          for (int64_t out : {1, 16, 37})
            for (int64_t in : {2, 33, 515, 1024}) {
              const PanelShape shape = {experts, out, in, to};
              Buffer source({}, static_cast<size_t>(experts * out * in) * bytes(from));
              Buffer packed({}, static_cast<size_t>(shape.total_bytes()));
              const Tensor plain = source.view(from, {experts, out, in});
              for (int64_t n = 0; n < plain.elements(); ++n)
                put(plain, n, 0.01f + static_cast<float>(rng() % 1000));
              std::fill_n(packed.data(), packed.size(), std::byte{0xff});
              pack_panels(packed.data(), {.weight = plain, .experts = experts}, shape,
                          kernels_for(isa), pool);
              for (int64_t e = 0; e < experts; ++e)
                for (int64_t o = 0; o < shape.panels() * kPanel; ++o)
                  for (int64_t i = 0; i < shape.k(); ++i) {
                    float want = 0;
                    if (o < out && i < in) want = get(plain, (e * out + o) * in + i);
                    if (to == DType::kBF16) want = to_float(to_bf16(want));
                    ASSERT_EQ(element(packed.data(), shape, e, o, i), want)
                        << e << ' ' << o << ' ' << i << ' ' << name(from) << ' ' << name(to);
                  }
            }
}

TEST(Panels, ShapeOfAWeight) {
  float x = 0;
  const PanelShape one =
      PanelShape::of({.weight = host_tensor(&x, DType::kF32, {33, 10}), .bias = {}}, DType::kBF16);
  EXPECT_EQ(one.experts, 1);
  EXPECT_EQ(one.out, 33);
  EXPECT_EQ(one.k(), 32);
  EXPECT_EQ(one.panels(), 4);
  EXPECT_EQ(one.total_bytes(), 4 * 16 * 32 * 2);
  const PanelShape stack = PanelShape::of(
      {.weight = host_tensor(&x, DType::kF32, {5, 8, 10}), .bias = {}, .experts = 5}, DType::kF32);
  EXPECT_EQ(stack.experts, 5);
  EXPECT_EQ(stack.k(), 10);
  EXPECT_EQ(stack.total_bytes(), 5 * 2 * 16 * 10 * 4);
}

TEST(Panels, OnlyPreparedWeightsAreMultiplied) {
  const auto ops = make_cpu_ops(1);
  float x = 1, y = 0;
  const Tensor row = host_tensor(&x, DType::kF32, {1, 1}),
               out = host_tensor(&y, DType::kF32, {1, 1});
  const Linear plain = {.weight = row};
  EXPECT_DEATH(ops->linear(out, row, plain), "prepare\\(\\) has not seen");
  Buffer owner;
  Linear w = ops->prepare(plain, {DType::kF32}, &owner);
  ops->linear(out, row, w);
  EXPECT_EQ(y, 1);
  w.format.scale = DType::kF32;
  EXPECT_DEATH(ops->linear(out, row, w), "float32 with a float32 scale");
  EXPECT_DEATH((void)ops->prepare(plain, {DType::kI8}, &owner), "from float32 to int8");
}

}  // namespace
}  // namespace skiff::cpu

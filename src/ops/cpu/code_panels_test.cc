// Every code of every format becomes its value, in every instruction set.
#include "ops/cpu/code_panels.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/cpu/cpu_features.h"
#include "tensor/convert.h"
#include "weights/codes.h"

namespace skiff::cpu {
namespace {

constexpr int kLines = 4, kStep = 3 * kPanel;  // lines of a panel lie `kStep` words apart

// Lines of a panel with all codes: input i of output j in line n has code (n * 16 + j) * inputs +
// i.
std::vector<uint32_t> lines_of(DType dtype) {
  const int width = bits(dtype), inputs = 32 / width;
  std::vector<uint32_t> words(size_t{kLines} * kStep, 0xffffffffu);
  for (int n = 0; n < kLines; ++n)
    for (int j = 0; j < kPanel; ++j) {
      uint32_t word = 0;
      for (int i = 0; i < inputs; ++i) {
        const auto code = static_cast<uint32_t>((n * kPanel + j) * inputs + i) % (1u << width);
        word |= code << (width == 8 ? i * 8 : (i / 2 + i % 2 * 4) * 4);
      }
      words[static_cast<size_t>(n) * kStep + static_cast<size_t>(j)] = word;
    }
  return words;
}

TEST(CodePanels, EveryCodeBecomesItsValue) {
  for (const Isa isa : available_isas()) {
    const Kernels k = kernels_for(isa);
    for (const DType dtype :
         {DType::kI8, DType::kU8, DType::kF8E4M3, DType::kI4, DType::kU4, DType::kF4E2M1}) {
      const std::vector<uint32_t> words = lines_of(dtype);
      const CodeLines lines = {words.data(), kStep, kLines};
      const int inputs = 32 / bits(dtype);
      std::vector<float> wide(size_t{kLines} * kPanel * 8, NAN);
      std::vector<BF16> narrow(wide.size());
      k.expand_f32(wide.data(), lines, codes_of(dtype));
      if (k.expand_bf16) k.expand_bf16(narrow.data(), lines, codes_of(dtype));
      for (int i = 0; i < kLines * inputs; ++i)
        for (int j = 0; j < kPanel; ++j) {
          const int index = (i / inputs * kPanel + j) * inputs + i % inputs;
          const auto code = static_cast<uint8_t>(bits(dtype) == 8 ? index : index & 15);
          const float want = code_value(&code, dtype, 0);
          if (std::isnan(want)) continue;
          EXPECT_EQ(wide[static_cast<size_t>(i * kPanel + j)], want)
              << k.name << ' ' << name(dtype) << ' ' << int{code};
          if (!k.expand_bf16) continue;
          EXPECT_EQ(to_float(narrow[static_cast<size_t>((i / 2 * kPanel + j) * 2 + i % 2)]), want)
              << k.name << ' ' << name(dtype) << ' ' << int{code};
        }
    }
  }
}

}  // namespace
}  // namespace skiff::cpu

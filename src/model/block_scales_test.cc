// What is read of blocks whose scale is zero, and what is refused.
#include "model/block_scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/load_error.h"
#include "model/stored_numbers.h"
#include "model/unpack.h"

namespace skiff::model {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kOut = 500, kIn = 6, kTall = 200;

// What was read; the functions of a format have no state of their own.
struct Counts {
  int64_t all = 0, most = 0;
};
Counts& counts() {
  static Counts counts;
  return counts;
}

void elements(const StoredModule& m, const Region& region, std::byte* to) {
  const int64_t count = region.rows * region.cols;
  counts().all += count;
  counts().most = std::max(counts().most, count);
  for (int64_t r = region.row; r < region.row + region.rows; ++r)
    for (int64_t c = region.col; c < region.col + region.cols; ++c)
      *to++ = stored<std::byte>(*m.of(Role::kWeight), r * kIn + c);
}
void scales(const StoredModule&, const BlockRows& rows, float* to) {
  std::fill_n(to, rows.count, 0.0f);
}
constexpr Unpacking kUnpacking{.elements = elements, .scales = scales};

// Two stacked matrices of int8 in blocks of kTall rows, all of whose scales are zero.
class ZeroScales {
 public:
  ZeroScales() {
    format_.values = {.dtype = DType::kI8, .block_out = kTall, .block_in = 0, .scale = DType::kF32};
    format_.unpacking = &kUnpacking;
    counts() = {};
  }
  void set(int64_t row, int64_t col) {
    bytes_[static_cast<size_t>(row * kIn + col)] = std::byte{1};
  }
  void widen_all() const {
    const StoredTensor tensor{.entry = &entry_, .bytes = bytes_};
    StoredModule module{.format = &format_,
                        .tensors = {},
                        .shape = {.experts = 2, .out = kOut, .in = kIn},
                        .order = {},
                        .numbers = {}};
    module.tensors[static_cast<size_t>(Role::kWeight)] = &tensor;
    std::vector<float> values(bytes_.size());
    widen(module, {0, module.shape.rows(), 0, kIn}, values.data());
  }

 private:
  StoredFormat format_;
  TensorEntry entry_{.name = "w", .dtype = "I8", .shape = {2, kOut, kIn}};
  std::vector<std::byte> bytes_ = std::vector<std::byte>(2 * kOut * kIn);
};

// Values are unpacked in bands; each block is read once besides, in bands too.
TEST(BlockScales, BlocksOfZerosAreReadOnce) {
  ZeroScales().widen_all();
  EXPECT_EQ(counts().all, 2 * (2 * kOut * kIn));
  EXPECT_LT(counts().most, kTall * kIn);
}

// The last rows of a block are in another band than its first, and the last block is cut short.
TEST(BlockScales, AScaleOfZeroIsForZerosOnly) {
  for (const auto& [row, block] :
       {std::pair(0, 0), {199, 0}, {200, 1}, {499, 2}, {500, 3}, {699, 3}, {999, 5}}) {
    ZeroScales zeros;
    zeros.set(row, 5);
    EXPECT_THAT([&] { zeros.widen_all(); },
                ::testing::ThrowsMessage<LoadError>(
                    HasSubstr(fmt::format("\"w\": the scale of block [{}, 0] is 0", block))))
        << row;
  }
}

}  // namespace
}  // namespace skiff::model

// gqa_attend in the shape classes of its fast kernels on a device: bf16, head sizes of 64, 128 and
// 256, every group, pages and windows of many sizes, prefills beside decodes.
#include "ops/suite/attention.h"

namespace skiff::suite {
namespace {

constexpr DType kBF16 = DType::kBF16;

// One row each, at the edges of tiles (64 positions) and of pages, and of very different lengths.
const std::vector<Piece> kDecode = {{0, 1},   {62, 1},  {63, 1},  {64, 1},   {130, 0},
                                    {500, 1}, {127, 1}, {255, 1}, {2900, 1}, {0, 0}};
// A few rows each, as a speculative check has them.
const std::vector<Piece> kFewRows = {{0, 2}, {100, 3}, {1000, 4}, {63, 1}, {62, 2}, {0, 1}};
// Chunks of prompts with and without a cached prefix, up to and beyond the 128 packed rows of a
// prefill tile, beside decodes.
const std::vector<Piece> kChunks = {{0, 1},     {0, 300}, {400, 200}, {64, 64}, {63, 130},
                                    {1700, 67}, {700, 1}, {0, 128},   {0, 129}, {777, 1}};

// The host's backends have one kernel for all shapes, so they see one case of each kind only.
class AttendShapes : public OpSuite {
 protected:
  bool device() const { return ops->device() != Device{}; }
  void attend(const Gqa& spec, int page_size, const std::vector<Piece>& pieces, int checked = 14) {
    for (const Pool pool : kPools)
      attend_case(*ops, {spec, kBF16, {.dtype = kBF16}, page_size, pieces, checked, pool});
  }
};

TEST_P(AttendShapes, DecodeOfEveryHeadSize) {
  for (int dim : {64, 128, 256}) {
    attend(gqa(8, 2, dim), 64, kDecode);
    attend(gqa(8, 2, dim), 64, kFewRows, 13);
    if (!device()) return;
  }
}

TEST_P(AttendShapes, DecodeOfEveryGroup) {
  for (int group = device() ? 1 : 15; group <= 16; ++group) {
    attend(gqa(group * 2, 2, 128), 64, kDecode);
    attend(gqa(group, 1, 64), 64, kFewRows, 13);
  }
}

TEST_P(AttendShapes, DecodeOfEveryPageSize) {
  for (int page : device() ? std::vector<int>{1, 8, 16, 24, 32, 64, 128, 256, 4096}
                           : std::vector<int>{1, 256}) {
    attend(gqa(8, 2, 128), page, kDecode);
    attend(gqa(4, 2, 64), page, kFewRows, 13);
  }
}

TEST_P(AttendShapes, DecodeOfEveryWindow) {
  for (int window :
       device() ? std::vector<int>{1, 2, 63, 64, 65, 100, 1000} : std::vector<int>{65}) {
    attend(gqa(8, 2, 128, window), 16, kDecode);
    attend(gqa(8, 2, 64, window), 64, kFewRows, 13);
    if (device()) attend(gqa(2, 1, 256, window), 32, kDecode);
  }
}

// More sequences than blocks, and more work on one than on all others.
TEST_P(AttendShapes, DecodeOfManySequences) {
  std::vector<Piece> many(device() ? 200 : 20, Piece{333, 1});
  attend(gqa(8, 2, 128), 64, many, 20);
  if (!device()) return;
  many[77] = {20000, 1};
  attend(gqa(8, 2, 128), 64, many, 20);
  attend(gqa(7, 1, 64), 16, std::vector<Piece>(300, Piece{20, 1}), 20);
}

TEST_P(AttendShapes, PrefillOfEveryHeadSizeAndGroup) {
  for (int dim : {64, 128, 256}) {
    for (int group : device() ? std::vector<int>{1, 2, 3, 4, 5, 7, 8, 16} : std::vector<int>{7})
      attend(gqa(group * (group < 8 ? 2 : 1), group < 8 ? 2 : 1, dim), 64, kChunks);
    if (!device()) return;
  }
}

TEST_P(AttendShapes, PrefillOfEveryPageSize) {
  if (!device()) GTEST_SKIP() << "one kernel for all: PrefillOfEveryHeadSizeAndGroup covers it";
  for (int page : {1, 16, 24, 32, 128, 256, 4096}) {
    for (int dim : {64, 128, 256}) attend(gqa(8, 2, dim), page, kChunks, 10);
  }
}

TEST_P(AttendShapes, PrefillOfEveryWindow) {
  if (!device()) GTEST_SKIP() << "one kernel for all: AttendSeesOnlyItsWindow covers it";
  for (int dim : {64, 128, 256}) {
    for (int window : {1, 2, 63, 100, 128, 129, 600}) {
      attend(gqa(8, 2, dim, window), 64, kChunks, 10);
      attend(gqa(4, 1, dim, window), 16, kChunks, 10);
    }
  }
}

TEST_P(AttendShapes, PrefillOfALongPrompt) {
  if (!device()) GTEST_SKIP() << "AttendOfLongContext covers it";
  attend(gqa(8, 2, 128), 64, {{0, 4100}}, 12);
  attend(gqa(8, 2, 128), 64, {{3000, 1500}, {10, 1}, {0, 700}}, 12);
}

INSTANTIATE_TEST_SUITE_P(Backends, AttendShapes, testing::ValuesIn(backends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skiff::suite

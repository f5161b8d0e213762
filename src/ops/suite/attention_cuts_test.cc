// Rows of long contexts must come out alike, bit for bit, where batch_invariant() says so: as rows
// of a prompt that is computed at once or in parts, as rows of a speculative check and as decodes,
// whose keys were stored by the same step or by earlier ones. A device has kernels of their own for
// these, and divides contexts into tiles of 64 or 128 positions and into pieces of several tiles.
#include <gtest/gtest.h>

#include "ops/kv_quant.h"
#include "ops/suite/attention.h"

namespace skiff::suite {
namespace {

class AttentionCuts : public OpSuite {
 protected:
  void SetUp() override {
    OpSuite::SetUp();
    if (!ops->batch_invariant()) GTEST_SKIP() << "this backend promises less";
    if (ops->device() == Device{}) GTEST_SKIP() << "on the host all lengths are computed alike";
  }
  void expect_alike(const Gqa& spec, const std::vector<int>& lengths,
                    const std::vector<Cut>& cuts) {
    expect_cuts_alike(*ops, spec, DType::kBF16, {.dtype = DType::kBF16}, lengths, cuts);
  }
};

// Contexts that a device's kernels divide, and so many rows that they divide them otherwise.
TEST_P(AttentionCuts, InCompany) {
  const std::vector<Cut> cuts = {{.chunks = {1}},
                                 {.chunks = {256, 1, 300, 2, 64}},
                                 {.chunks = {5}, .reversed = true, .page_seed = 9},
                                 {.chunks = {400, 1, 2, 1, 30}, .reversed = true, .page_seed = 3}};
  for (const Gqa& spec :
       {gqa(8, 2, 128), gqa(4, 4, 64, 300), gqa(5, 1, 128, 70), gqa(4, 1, 256), gqa(14, 2, 64)})
    expect_alike(spec, {700, 1, 300, 513}, cuts);
  expect_alike(gqa(16, 1, 128), {4000}, {{.chunks = {700}}, {.chunks = {3900, 1, 1, 98}}});
}

// Chunks that end before, at and behind the borders of tiles and of pieces, each followed by
// decodes.
TEST_P(AttentionCuts, AtBordersOfTilesAndPieces) {
  const std::vector<Cut> cuts = {
      {.chunks = {63, 1, 1, 62, 1, 1, 126, 1, 256, 1, 511, 1, 1, 1022, 1, 1, 200}},
      {.chunks = {64, 1, 127, 1, 320, 512, 1, 1023, 1, 300}, .page_seed = 5, .page_size = 64},
      {.chunks = {2046, 1, 1, 1, 1, 60}, .page_seed = 6, .page_size = 128},
      {.chunks = {1025, 4, 3, 2, 16, 1000}, .page_size = 32}};
  for (const int dim : {64, 128, 256})
    for (const int group : {1, 4, 7, 16}) expect_alike(gqa(group, 1, dim), {2300}, cuts);
}

// A prompt whose every row is decoded.
TEST_P(AttentionCuts, ADecodeGivesWhatAPromptGives) {
  for (const int dim : {64, 128, 256})
    expect_alike(gqa(8, 2, dim), {1100}, {{.chunks = {1}}, {.chunks = {3}, .page_size = 64}});
}

// The first tile that a row sees, and the first piece, begin where its window does.
TEST_P(AttentionCuts, OfWindows) {
  const std::vector<Cut> cuts = {{.chunks = {4}}, {.chunks = {300, 1, 2, 410, 3, 1}}};
  for (const int dim : {64, 128, 256})
    for (const int window : {1, 64, 129, 600}) expect_alike(gqa(4, 1, dim, window), {900}, cuts);
}

// So many sequences that blocks have several heads, and so few that a head has several blocks.
TEST_P(AttentionCuts, AmongManyAndFewSequences) {
  const std::vector<int> many(150, 40);
  std::vector<int> lengths = many;
  lengths[70] = 1500;
  lengths[149] = 1100;
  for (const int dim : {64, 128, 256})
    expect_alike(gqa(8, 2, dim), lengths,
                 {{.chunks = {30, 1, 1, 1, 1400, 1}},
                  {.chunks = {33, 1, 900, 1}, .reversed = true, .page_seed = 4, .page_size = 64}});
}

TEST_P(AttentionCuts, OverQuantizedCaches) {
  const std::vector<Cut> cuts = {{.chunks = {511, 1, 1, 510, 1, 2}},
                                 {.chunks = {300, 1, 725, 1}, .reversed = true, .page_size = 64}};
  for (const DType cache : {DType::kI8, DType::kU4})
    expect_cuts_alike(*ops, gqa(8, 2, 128), DType::kBF16, kv_format(cache), {1100, 200}, cuts);
}

INSTANTIATE_TEST_SUITE_P(Backends, AttentionCuts, testing::ValuesIn(backends()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skiff::suite

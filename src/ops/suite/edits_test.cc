// store_edits, edit_logits.
#include <limits>
#include <map>

#include "ops/suite/suite.h"

namespace skiff::suite {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Piece {
  int32_t row, page, count, first = -1;
  float divide = 1;
};

LogitEdits edits_of(Workspace& ws, const std::vector<Piece>& pieces) {
  std::vector<int32_t> row, page, count, first;
  std::vector<float> divide;
  for (const Piece& p : pieces) {
    row.push_back(p.row);
    page.push_back(p.page);
    count.push_back(p.count);
    first.push_back(p.first);
    divide.push_back(p.divide);
  }
  return {.row = ws.ints(row),
          .page = ws.ints(page),
          .count = ws.ints(count),
          .first = ws.ints(first),
          .divide = ws.floats(divide)};
}

float edited(float x, float divide, float add) { return (x > 0 ? x / divide : x * divide) + add; }

TEST_P(OpSuite, StoreEditsChangesWhatItNames) {
  for (const int n : {0, 1, 255, 700}) {
    Workspace ws(static_cast<uint64_t>(n));
    const EditPages pages{.token = ws.output(DType::kI32, {7, 128}),
                          .add = ws.random(DType::kF32, {7, 128})};
    const std::vector<int32_t> places = ws.rng.shuffled(7 * 128);
    std::vector<int32_t> at(places.begin(), places.begin() + n), token;
    std::vector<float> add;
    for (int i = 0; i < n; ++i) {
      token.push_back(1000 + i);
      add.push_back(i % 5 ? static_cast<float>(ws.rng.normal()) : -kInf);
    }
    std::vector<int32_t> want_token(7 * 128, -1);
    std::vector<float> want_add(pages.add.as<float>(), pages.add.as<float>() + 7 * 128);
    for (size_t i = 0; i < at.size(); ++i) {
      want_token[static_cast<size_t>(at[i])] = token[i];
      want_add[static_cast<size_t>(at[i])] = add[i];
    }
    const EditChanges changes{.at = ws.ints(at), .token = ws.ints(token), .add = ws.floats(add)};
    ws.begin_op({pages.token, pages.add});
    ops->store_edits(pages, changes);
    ws.end_op();
    EXPECT_TRUE(
        std::ranges::equal(want_token, std::span(pages.token.as<int32_t>(), want_token.size())));
    EXPECT_TRUE(std::ranges::equal(want_add, std::span(pages.add.as<float>(), want_add.size())));
  }
}

// Rows with several pieces, in any order; full, short and empty ones; tokens that follow each other
// and tokens that do not; factors from one end of what requests may ask to the other.
TEST_P(OpSuite, EditLogits) {
  constexpr int kSize = 300, kVocab = 2311;
  for (const int rows : {0, 1, 9}) {
    Workspace ws(static_cast<uint64_t>(rows));
    const Tensor logits = ws.random(DType::kF32, {rows, kVocab}, 3, 5);
    const Tensor want = ws.output(DType::kF32, {rows, kVocab});
    convert(want, logits);
    std::vector<int32_t> token;
    std::vector<float> add;
    std::vector<Piece> pieces;
    for (int32_t r = 0; r < rows; ++r) {
      const std::vector<int32_t> tokens = ws.rng.shuffled(kVocab);
      const float divide = std::vector{1.0f, 1.1f, 0.5f, 1e-6f, 1e6f}[static_cast<size_t>(r % 5)];
      for (int p = 0; p < r % 4; ++p) {
        const bool run = r % 3 == 0;
        const int count = p == 1 ? kSize : ws.rng.below(kSize);
        const int32_t first = run ? kSize * p + 3 : -1;
        pieces.push_back({r, static_cast<int32_t>(token.size()) / kSize, count, first, divide});
        for (int i = 0; i < kSize; ++i) {
          // if the tokens are consecutive, the page's tokens are not read
          token.push_back(run ? -1 : tokens[static_cast<size_t>(kSize * p + i)]);
          add.push_back(i % 7 == 6 ? -kInf : static_cast<float>(ws.rng.normal()));
          if (i >= count) continue;
          float& x = want.row<float>(r)[run ? first + i : token.back()];
          x = edited(x, divide, add.back());
        }
      }
    }
    for (size_t i = 0; i + 1 < pieces.size(); i += 2) std::swap(pieces[i], pieces[i + 1]);
    const auto n = static_cast<int64_t>(token.size()) / kSize;
    const EditPages pages{.token = ws.ints(token, {n, kSize}),
                          .add = ws.floats(add).reshaped({n, kSize})};
    const LogitEdits edits = edits_of(ws, pieces);
    ws.begin_op({logits});
    ops->edit_logits(logits, pages, edits);
    ws.end_op();
    EXPECT_EQ(all_bytes(logits), all_bytes(want));
  }
}

// A page may be read by many rows, and changed between two edits: each edit sees the entries of its
// time.
TEST_P(OpSuite, EditsAndChangesHappenInOrder) {
  Workspace ws(8);
  const Tensor logits = ws.floats({1, 2, 3, 4, -5, 6, 7, 8}).reshaped({2, 4});
  const EditPages pages{.token = ws.ints({3, 0}, {1, 2}),
                        .add = ws.floats({0.5f, -1}).reshaped({1, 2})};
  const LogitEdits both = edits_of(ws, {{0, 0, 2}, {1, 0, 2, -1, 2}});
  const EditChanges changes{.at = ws.ints({1}), .token = ws.ints({2}), .add = ws.floats({-kInf})};
  ops->edit_logits(logits, pages, both);
  ops->store_edits(pages, changes);
  ops->edit_logits(logits, pages, both);
  finish();
  EXPECT_EQ((std::vector<float>{logits.as<float>(), logits.as<float>() + 8}),
            (std::vector<float>{0, 2, -kInf, 5, -11, 6, -kInf, 2.75f}));
}

}  // namespace
}  // namespace skiff::suite

// store_edits, edit_logits, count_tokens, penalize.
#include <array>
#include <limits>
#include <map>

#include "ops/suite/suite.h"

namespace skiff::suite {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Piece {
  int32_t row, page, count, first = -1;
};

LogitEdits edits_of(Workspace& ws, const std::vector<Piece>& pieces) {
  std::vector<int32_t> row, page, count, first;
  for (const Piece& p : pieces) {
    row.push_back(p.row);
    page.push_back(p.page);
    count.push_back(p.count);
    first.push_back(p.first);
  }
  return {
      .row = ws.ints(row), .page = ws.ints(page), .count = ws.ints(count), .first = ws.ints(first)};
}

TEST_P(OpSuite, StoreEditsChangesWhatItNames) {
  constexpr int kPlaces = 7 * 128;
  for (const int n : {0, 1, 255, 700}) {
    Workspace ws(static_cast<uint64_t>(n));
    const EditPages pages{.token = ws.output(DType::kI32, {7, 128}),
                          .add = ws.random(DType::kF32, {7, 128})};
    const std::vector<int32_t> places = ws.rng.shuffled(kPlaces);
    std::vector<int32_t> at(places.begin(), places.begin() + n), token;
    std::vector<float> add;
    for (int i = 0; i < n; ++i) {
      token.push_back(1000 + i);
      add.push_back(i % 5 ? static_cast<float>(ws.rng.normal()) : -kInf);
    }
    std::vector<int32_t> want_token(kPlaces, -1);
    std::vector<float> want_add(pages.add.as<float>(), pages.add.as<float>() + kPlaces);
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
// and tokens that do not.
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
      for (int p = 0; p < r % 4; ++p) {
        const bool run = r % 3 == 0;
        const int count = p == 1 ? kSize : ws.rng.below(kSize);
        const int32_t first = run ? kSize * p + 3 : -1;
        pieces.push_back({r, static_cast<int32_t>(token.size()) / kSize, count, first});
        for (int i = 0; i < kSize; ++i) {
          // if the tokens are consecutive, the page's tokens are not read
          token.push_back(run ? -1
                              : tokens[static_cast<size_t>(p) * kSize + static_cast<size_t>(i)]);
          add.push_back(i % 7 == 6 ? -kInf : static_cast<float>(ws.rng.normal()));
          if (i >= count) continue;
          want.row<float>(r)[run ? first + i : token.back()] += add.back();
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
  const LogitEdits both = edits_of(ws, {{0, 0, 2}, {1, 0, 2}});
  const EditChanges changes{.at = ws.ints({1}), .token = ws.ints({2}), .add = ws.floats({-kInf})};
  ops->edit_logits(logits, pages, both);
  ops->store_edits(pages, changes);
  ops->edit_logits(logits, pages, both);
  finish();
  EXPECT_EQ((std::vector<float>{logits.as<float>(), logits.as<float>() + 8}),
            (std::vector<float>{0, 2, -kInf, 5, -6, 6, -kInf, 9}));
}

// Rows with words of all kinds: all allowed, none, single bits; a last word that is not full.
TEST_P(OpSuite, MaskLogits) {
  for (const int vocab : {1, 31, 33, 2311, 70001}) {
    Workspace ws(static_cast<uint64_t>(vocab));
    constexpr int kRows = 5;
    const Tensor logits = ws.random(DType::kF32, {kRows, vocab}, 3, 5);
    const Tensor want = ws.output(DType::kF32, {kRows, vocab});
    convert(want, logits);
    const std::vector<int32_t> rows = {4, 0, 2};
    const int words = (vocab + 31) / 32;
    std::vector<int32_t> allowed;
    for (const int32_t row : rows) {
      for (int w = 0; w < words; ++w) {
        const std::array<uint32_t, 3> kinds = {
            ~0u, 0u, static_cast<uint32_t>(ws.rng.below(1 << 30)) * 2654435761u};
        const uint32_t bits = kinds.at(static_cast<size_t>(ws.rng.below(3)));
        allowed.push_back(static_cast<int32_t>(bits));
        for (int t = 32 * w; t < std::min(vocab, 32 * w + 32); ++t)
          if ((bits >> (t % 32) & 1) == 0) want.row<float>(row)[t] = -kInf;
      }
    }
    const Tensor row = ws.ints(rows), word = ws.ints(allowed, {3, words});
    ws.begin_op({logits});
    ops->mask_logits(logits, row, word);
    ws.end_op();
    EXPECT_EQ(all_bytes(logits), all_bytes(want)) << vocab;
  }
}

// Holds the tensor of the slots' lists of seen tokens, and the counts that the lists must give.
class Lists {
 public:
  using Counts = std::map<int32_t, int32_t>;

  Lists(Workspace& ws, int slots, int most)
      : tensor(ws.output(DType::kI32, {slots, int64_t{2} * (1 + most)})),
        counts(static_cast<size_t>(slots)) {}
  // Writes a list of these tokens with counts from 0 to 3.
  void fill(int slot, std::span<const int32_t> tokens) {
    auto* to = tensor.row<int32_t>(slot);
    counts[static_cast<size_t>(slot)].clear();
    *to++ = static_cast<int32_t>(tokens.size());
    *to++ = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      counts[static_cast<size_t>(slot)][tokens[i]] = static_cast<int32_t>(i % 4);
      *to++ = tokens[i];
      *to++ = static_cast<int32_t>(i % 4);
    }
  }
  Counts of(int slot) const {
    Counts out;
    const auto* list = tensor.row<int32_t>(slot);
    for (int64_t i = 1; i <= list[0]; ++i) out[list[2 * i]] = list[2 * i + 1];
    EXPECT_EQ(std::ssize(out), list[0]) << "a token has two entries";
    EXPECT_EQ(list[1], 0);
    return out;
  }

  Tensor tensor;
  std::vector<Counts> counts;
};

// Empty, short, long and nearly full lists; tokens at any place of a list, new ones, and the same
// ones again; slots in any order, and tokens from any row.
TEST_P(OpSuite, CountTokens) {
  constexpr int kSlots = 7, kMost = 1500, kSteps = 40;
  const std::vector<int> sizes = {0, 1, 31, 256, 257, 1100, kMost - kSteps};
  Workspace ws(71);
  Lists lists(ws, kSlots, kMost);
  for (int s = 0; s < kSlots; ++s) {
    const std::vector<int32_t> tokens = ws.rng.shuffled(100000);
    lists.fill(s, std::span(tokens).first(static_cast<size_t>(sizes[static_cast<size_t>(s)])));
  }
  for (int step = 0; step < kSteps; ++step) {
    std::vector<int32_t> slots = ws.rng.shuffled(kSlots), rows = ws.rng.shuffled(kSlots + 2);
    slots.resize(static_cast<size_t>(step % (kSlots + 1)));
    rows.resize(slots.size());
    std::vector<int32_t> tokens(kSlots + 2, -1);
    for (size_t i = 0; i < slots.size(); ++i) {
      Lists::Counts& counts = lists.counts[static_cast<size_t>(slots[i])];
      const auto* list = lists.tensor.row<int32_t>(slots[i]);
      const bool again = step % 3 > 0 && list[0] > 0;
      const int64_t at = step % 3 == 1 ? list[0] : 1 + ws.rng.below(std::max(1, list[0]));
      tokens[static_cast<size_t>(rows[i])] = again ? list[2 * at] : 100000 + ws.rng.below(50);
      ++counts[tokens[static_cast<size_t>(rows[i])]];
    }
    const Tensor drawn = ws.ints(tokens), of = ws.ints(slots), from = ws.ints(rows);
    ws.begin_op({lists.tensor});
    ops->count_tokens({lists.tensor}, of, drawn, from);
    finish();
    ws.end_op();
    for (int s = 0; s < kSlots; ++s)
      ASSERT_EQ(lists.of(s), lists.counts[static_cast<size_t>(s)]) << "slot " << s;
  }
}

// Factors from one end of what requests may ask to the other; lists that are empty, that two rows
// share, and that are longer than what threads of a device take at once.
TEST_P(OpSuite, Penalize) {
  constexpr int kSlots = 5, kMost = 40000, kVocab = 50021;
  for (const int rows : {0, 1, 9}) {
    Workspace ws(static_cast<uint64_t>(rows) + 72);
    Lists lists(ws, kSlots, kMost);
    for (int s = 0; s < kSlots; ++s) {
      const std::vector<int32_t> tokens = ws.rng.shuffled(kVocab);
      const int size = std::vector{3000, 0, 1, 257, kMost}[static_cast<size_t>(s)];
      lists.fill(s, std::span(tokens).first(static_cast<size_t>(size)));
    }
    const Tensor logits = ws.random(DType::kF32, {rows + 1, kVocab}, 3, 5);
    const Tensor want = ws.output(DType::kF32, {rows + 1, kVocab});
    convert(want, logits);
    std::vector<int32_t> row = ws.rng.shuffled(rows + 1), slot;
    row.resize(static_cast<size_t>(rows));
    std::vector<float> divide, once, each;
    for (int i = 0; i < rows; ++i) {
      slot.push_back(rows == 1 ? 4 : i % kSlots);
      divide.push_back(std::vector{1.1f, 1.0f, 0.5f, 1e-6f, 1e6f}[static_cast<size_t>(i % 5)]);
      once.push_back(std::vector{0.7f, 0.0f, -2.0f}[static_cast<size_t>(i % 3)]);
      each.push_back(std::vector{0.3f, -0.1f, 0.0f, 2.0f}[static_cast<size_t>(i % 4)]);
      for (const auto& [token, count] : lists.counts[static_cast<size_t>(slot.back())]) {
        float& x = want.row<float>(row[static_cast<size_t>(i)])[token];
        x = x > 0 ? x / divide.back() : x * divide.back();
        const float amount = once.back() + each.back() * static_cast<float>(count);
        x += count > 0 ? -amount : 0;
      }
    }
    const Penalties penalties{.row = ws.ints(row),
                              .slot = ws.ints(slot),
                              .divide = ws.floats(divide),
                              .once = ws.floats(once),
                              .each = ws.floats(each)};
    ws.begin_op({logits});
    ops->penalize(logits, {lists.tensor}, penalties);
    finish();
    ws.end_op();
    EXPECT_EQ(all_bytes(logits), all_bytes(want)) << rows << " rows";
  }
}

// A draw sees the counts of its time, whether the token before it is new or not.
TEST_P(OpSuite, PenaltiesAndCountsHappenInOrder) {
  Workspace ws(73);
  Lists lists(ws, 2, 4);
  lists.fill(1, std::vector<int32_t>{2});
  const Tensor logits = ws.floats({1, 2, 3, 4}).reshaped({1, 4}), row = ws.ints({0}),
               slot = ws.ints({1}), drawn = ws.ints({7, 3, 2});
  const Penalties penalties{.row = row,
                            .slot = slot,
                            .divide = ws.floats({2}),
                            .once = ws.floats({1}),
                            .each = ws.floats({0.5f})};
  ops->penalize(logits, {lists.tensor}, penalties);
  ops->count_tokens({lists.tensor}, slot, drawn, ws.ints({1}));
  ops->penalize(logits, {lists.tensor}, penalties);
  ops->count_tokens({lists.tensor}, slot, drawn, ws.ints({2}));
  ops->penalize(logits, {lists.tensor}, penalties);
  finish();
  EXPECT_EQ((std::vector<float>{logits.as<float>(), logits.as<float>() + 4}),
            (std::vector<float>{1, 2, 3 / 8.0f - 1.5f, (4 / 2.0f - 1.5f) / 2 - 1.5f}));
}

}  // namespace
}  // namespace skiff::suite

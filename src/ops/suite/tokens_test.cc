// copy, mark and wait, replay, load_tokens and store_tokens.
#include "ops/suite/suite.h"

namespace skiff::suite {
namespace {

TEST_P(OpSuite, CopyKeepsValues) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI32}) {
    for (int rows : {0, 1, 7}) {
      Workspace ws(11);
      std::vector<int32_t> values;
      values.reserve(static_cast<size_t>(rows) * 33);
      for (int i = 0; i < rows * 33; ++i) values.push_back(ws.rng.below(1 << 30));
      const Tensor x =
          dtype == DType::kI32 ? ws.ints(values, {rows, 33}) : ws.random(dtype, {rows, 33}, 2, 5);
      const Tensor out = ws.output(dtype, {rows, 33}, 3);
      ws.begin_op({out});
      ops->copy(out, x);
      finish();
      ws.end_op();
      EXPECT_EQ(all_bytes(out), all_bytes(x)) << name(dtype) << ", " << rows << " rows";
    }
  }
}

TEST_P(OpSuite, CopyRoundsToTheOtherDtype) {
  for (DType from : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (DType to : {DType::kF32, DType::kBF16}) {
      Workspace ws(12);
      const Tensor x = ws.random(from, {5, 70}, 3, 1), out = ws.output(to, {5, 70});
      const Tensor want = ws.output(to, {5, 70});
      convert(want, x);
      ws.begin_op({out});
      ops->copy(out, x);
      finish();
      ws.end_op();
      EXPECT_EQ(all_bytes(out), all_bytes(want)) << name(from) << " to " << name(to);
    }
  }
}

TEST_P(OpSuite, TokensStayWhereTheyAreDrawn) {
  Workspace ws(13);
  const Tensor last = ws.ints({100, 101, 102, 103, 104});
  const Tensor tokens = ws.ints({7, -1, 8, -5, -2, 9});
  ws.begin_op({tokens});
  ops->load_tokens(tokens, last);
  finish();
  ws.end_op();
  EXPECT_EQ(all_bytes(tokens), all_bytes(ws.ints({7, 100, 8, 104, 101, 9})));

  const Tensor drawn = ws.ints({55, 66, 88, 77}), slots = ws.ints({4, 0, -1, 3});
  ws.begin_op({last});
  ops->store_tokens(last, slots, drawn);
  finish();
  ws.end_op();
  EXPECT_EQ(all_bytes(last), all_bytes(ws.ints({66, 101, 102, 77, 55})));
  ops->store_tokens(last, ws.ints({}), ws.ints({}));
  ops->load_tokens(ws.ints({}), last);
  finish();
}

// Small and large, whole and in rows that lie apart, more than a launch takes; and again, with
// other values in the same host memory.
TEST_P(OpSuite, StepsBeginWithWhatArrives) {
  Workspace ws(15);
  const std::vector<int32_t> row_start{0, 1}, kv_len{1};
  const RaggedBatch batch{.num_seqs = 1,
                          .num_tokens = 1,
                          .max_rows = 1,
                          .max_kv = 1,
                          .row_start = ws.ints(row_start),
                          .kv_len = ws.ints(kv_len),
                          .host_row_start = row_start,
                          .host_kv_len = kv_len};
  struct Shape {
    int64_t rows, cols, gap;
  };
  std::vector<Shape> shapes{{1, 1, 0},  {3, 5, 2},   {0, 4, 0},
                            {7, 16, 4}, {128, 9, 7}, {1, 300001, 0}};
  for (int64_t n = 1; n < 20; ++n) shapes.push_back({n % 3 + 1, 4 * n, n % 2 * 4});
  std::vector<Arrival> arrivals{{}};
  std::vector<Tensor> outputs;
  for (const Shape& s : shapes) {
    std::vector<int32_t> values;
    for (int64_t i = 0; i < s.rows * s.cols; ++i) values.push_back(ws.rng.below(1 << 30));
    const Tensor from = ws.ints(values, {s.rows, s.cols});
    outputs.push_back(ws.output(DType::kI32, {s.rows, s.cols}, s.gap));
    arrivals.push_back({outputs.back(), from});
  }
  const auto expect_arrived = [&] {
    for (const Arrival& a : arrivals) EXPECT_EQ(all_bytes(a.to), all_bytes(a.from));
  };
  ws.begin_op(outputs);
  ops->begin_step(batch, arrivals);
  finish();
  ws.end_op();
  expect_arrived();
  for (const Arrival& a : arrivals)
    for (int64_t i = 0; i < a.from.elements(); ++i) a.from.as<int32_t>()[i] ^= 0x5a5a5a5a;
  ops->begin_step(batch, arrivals);
  finish();
  expect_arrived();
}

// Replayed work, recorded or not, reads the values that its tensors hold at that time.
TEST_P(OpSuite, ReplayDoesTheWorkAgain) {
  Workspace ws(14);
  const Tensor x = ws.random(DType::kF32, {3, 40}), sum = ws.random(DType::kF32, {3, 40});
  std::vector<double> want;
  want.reserve(120);
  for (int i = 0; i < 120; ++i) want.push_back(at(sum, i / 40, i % 40));
  using Key = std::optional<ReplayKey>;
  const Key none, decodes = ReplayKey{.rows = 3}, drafts = ReplayKey{.rows = 3, .rows_per_seq = 3},
                  other = ReplayKey{.rows = 3, .variant = 1};
  for (const Key& key : {none, decodes, decodes, drafts, decodes, drafts, other, drafts, none}) {
    for (int i = 0; i < 120; ++i) {
      put(x, i / 40, i % 40, ws.rng.normal());
      want[static_cast<size_t>(i)] =
          rounded(want[static_cast<size_t>(i)] + at(x, i / 40, i % 40), DType::kF32);
    }
    ops->replay(key, [&] { ops->add(sum, x); });
    const uint64_t mark = ops->mark();
    ops->wait(mark);
    ops->wait(mark);
    for (int i = 0; i < 120; ++i) EXPECT_EQ(at(sum, i / 40, i % 40), want[static_cast<size_t>(i)]);
  }
}

}  // namespace
}  // namespace skiff::suite

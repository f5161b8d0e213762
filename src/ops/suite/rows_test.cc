// Operations on rows: embed, gather_rows, add, add_norm, gated_act.
#include <numbers>

#include "ops/suite/suite.h"

namespace skiff::suite {
namespace {

constexpr DType kActs[] = {DType::kF32, DType::kBF16};
constexpr int kRows[] = {0, 1, 2, 17};
constexpr int kCols[] = {1, 7, 16, 33, 64, 100, 257, 1024};

TEST_P(OpSuite, EmbedCopiesRows) {
  for (DType table_type : kActs) {
    for (DType out_type : kActs) {
      for (int rows : kRows) {
        for (int cols : kCols) {
          Workspace ws(static_cast<uint64_t>(rows * 1000 + cols));
          const int vocab = 29;
          const Tensor table = ws.random(table_type, {vocab, cols});
          std::vector<int32_t> id;
          id.reserve(static_cast<size_t>(rows));
          for (int r = 0; r < rows; ++r) id.push_back(r == 0 ? vocab - 1 : ws.rng.below(vocab));
          const Tensor ids = ws.ints(id), out = ws.output(out_type, {rows, cols});
          ws.begin_op({out});
          ops->embed(out, table, ids);
          ws.end_op();
          for (int r = 0; r < rows; ++r) {
            for (int c = 0; c < cols; ++c) {
              ASSERT_EQ(at(out, r, c), rounded(at(table, id[static_cast<size_t>(r)], c), out_type));
            }
          }
        }
      }
    }
  }
}

TEST_P(OpSuite, GatherRowsCopiesBits) {
  for (DType act : kActs) {
    for (int rows : kRows) {
      for (int cols : kCols) {
        Workspace ws(static_cast<uint64_t>(rows * 1000 + cols));
        const Tensor x = ws.random(act, {23, cols}, 1, 3);
        std::vector<int32_t> from;
        from.reserve(static_cast<size_t>(rows));
        for (int r = 0; r < rows; ++r) from.push_back(ws.rng.below(23));
        const Tensor ids = ws.ints(from), out = ws.output(act, {rows, cols});
        ws.begin_op({out});
        ops->gather_rows(out, x, ids);
        ws.end_op();
        for (int r = 0; r < rows; ++r) {
          ASSERT_EQ(row_bytes(out, r), row_bytes(x, from[static_cast<size_t>(r)]));
        }
      }
    }
  }
}

TEST_P(OpSuite, AddRoundsOnce) {
  for (DType act : kActs) {
    for (int rows : kRows) {
      for (int cols : kCols) {
        Workspace ws(static_cast<uint64_t>(rows * 1000 + cols));
        const Tensor x = ws.random(act, {rows, cols}), out = ws.random(act, {rows, cols});
        const Tensor before = ws.output(act, {rows, cols});
        convert(before, out);
        ws.begin_op({out});
        ops->add(out, x);
        ws.end_op();
        for (int r = 0; r < rows; ++r) {
          for (int c = 0; c < cols; ++c) {
            ASSERT_EQ(at(out, r, c), rounded(at(before, r, c) + at(x, r, c), act));
          }
        }
      }
    }
  }
}

// Exact, and NaN is no less than 0. A row alone has the same bits as in a batch, as there is no
// sum.
TEST_P(OpSuite, ReluKeepsWhatIsNotNegative) {
  for (const DType type : kActs) {
    for (const int rows : kRows) {
      for (const int cols : kCols) {
        Workspace ws(static_cast<uint64_t>(rows * 1000 + cols));
        const Tensor x = ws.random(type, {rows, cols}), before = ws.output(type, {rows, cols});
        convert(before, x);
        ws.begin_op({x});
        ops->relu(x);
        ws.end_op();
        for (int r = 0; r < rows; ++r)
          for (int c = 0; c < cols; ++c)
            ASSERT_EQ(at(x, r, c), std::max(at(before, r, c), 0.0)) << rows << " x " << cols;
      }
    }
  }
  Workspace ws(3);
  const Tensor x = ws.floats({-0.0f, std::nanf(""), -INFINITY, INFINITY, 0x1p-149f, -0x1p-149f});
  ops->relu(x.reshaped({1, 6}));
  EXPECT_EQ(at(x, 0), 0);
  EXPECT_TRUE(std::isnan(at(x, 1)));
  EXPECT_EQ(at(x, 2), 0);
  EXPECT_EQ(at(x, 3), INFINITY);
  EXPECT_EQ(at(x, 4), 0x1p-149);
  EXPECT_EQ(at(x, 5), 0);
}

void add_norm_case(Ops& ops, DType act, int rows, int cols, bool with_delta) {
  Workspace ws(static_cast<uint64_t>(rows * 1000 + cols));
  const Tensor residual = ws.random(DType::kF32, {rows, cols}, 3);
  const Tensor before = ws.output(DType::kF32, {rows, cols});
  convert(before, residual);
  const Tensor delta = with_delta ? ws.random(act, {rows, cols}) : Tensor{};
  const Norm norm{.weight = ws.random(DType::kF32, {cols}), .eps = 1e-2f};
  const Tensor out = ws.output(act, {rows, cols});
  ws.begin_op({out, residual});
  ops.add_norm(out, residual, delta, norm);
  ws.end_op();
  std::vector<double> rms;
  for (int r = 0; r < rows; ++r) {
    double squares = 0;
    for (int c = 0; c < cols; ++c) {
      const double sum = at(before, r, c) + (delta ? at(delta, r, c) : 0);
      ASSERT_EQ(at(residual, r, c), rounded(sum, DType::kF32));
      squares += at(residual, r, c) * at(residual, r, c);
    }
    rms.push_back(std::sqrt(squares / cols + static_cast<double>(norm.eps)));
  }
  // A sum of n non-negative squares in any order is off by at most n roundings relatively, and
  // the root halves that; the other steps are a handful.
  expect_near(out, [&](int64_t r, int64_t c) {
    const double y = at(residual, r, c) / rms[static_cast<size_t>(r)] * at(norm.weight, c);
    return Approx{y, (0.5 * cols + 8) * kF32Round * std::abs(y)};
  });
}

TEST_P(OpSuite, AddNorm) {
  for (DType act : kActs) {
    for (int rows : kRows) {
      for (int cols : kCols) {
        add_norm_case(*ops, act, rows, cols, true);
        add_norm_case(*ops, act, rows, cols, false);
      }
    }
  }
}

// On devices a block keeps a row of up to 8,192 columns in registers, and a wider one in shared
// memory, of which it has 48 KB without asking: 12,288 floats are all of it.
TEST_P(OpSuite, AddNormOfWideRows) {
  for (DType act : kActs) {
    for (int cols : {4'096, 4'100, 7'168, 8'192, 8'196, 12'256, 12'288, 12'292, 16'384}) {
      add_norm_case(*ops, act, 2, cols, true);
      if (cols < 12'000) add_norm_case(*ops, act, 1, cols, false);
    }
  }
}

TEST_P(OpSuite, AddNormOfTinyAndHugeRows) {
  for (float scale : {1e-18f, 1e15f}) {
    Workspace ws(5);
    const Tensor residual = ws.random(DType::kF32, {2, 48}, scale);
    const Norm norm{.weight = ws.random(DType::kF32, {48}), .eps = 1e-6f};
    const Tensor out = ws.output(DType::kF32, {2, 48});
    ops->add_norm(out, residual, {}, norm);
    expect_near(out, [&](int64_t r, int64_t c) {
      double squares = 0;
      for (int i = 0; i < 48; ++i) squares += at(residual, r, i) * at(residual, r, i);
      const double y = at(residual, r, c) /
                       std::sqrt(squares / 48 + static_cast<double>(norm.eps)) * at(norm.weight, c);
      return Approx{y, 32 * kF32Round * std::abs(y)};
    });
  }
}

double activated(double x, Act act) {
  if (act == Act::kSilu) return x / (1 + std::exp(-x));
  return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
}

TEST_P(OpSuite, GatedAct) {
  for (Act act : {Act::kSilu, Act::kGelu}) {
    for (DType type : kActs) {
      for (int rows : kRows) {
        for (int cols : kCols) {
          Workspace ws(static_cast<uint64_t>(rows * 1000 + cols));
          const Tensor gate_up = ws.random(type, {rows, int64_t{2} * cols}, 4);
          const Tensor out = ws.output(type, {rows, cols});
          ws.begin_op({out});
          ops->gated_act(out, gate_up, act);
          ws.end_op();
          // exp is allowed 8 roundings, the rest a few. Of gelu the factor 1 + erf is exact only
          // to roundings of 1, so its bound scales with |x|.
          expect_near(out, [&](int64_t r, int64_t c) {
            const double x = at(gate_up, r, c), up = at(gate_up, r, cols + c);
            const double y = activated(x, act) * up;
            const double scale = act == Act::kGelu ? std::abs(x * up) : std::abs(y);
            return Approx{y, 16 * kF32Round * scale};
          });
        }
      }
    }
  }
}

TEST_P(OpSuite, GatedActSaturates) {
  for (Act act : {Act::kSilu, Act::kGelu}) {
    Workspace ws(9);
    const Tensor gate_up = ws.floats({200, -200, 88, -88, 1e30f, -1e30f, 1, 2, 3, 4, 5, 6});
    const Tensor out = ws.output(DType::kF32, {1, 6});
    ops->gated_act(out, gate_up.reshaped({1, 12}), act);
    expect_near(out, [&](int64_t, int64_t c) {
      const double y = activated(at(gate_up, c), act) * at(gate_up, 6 + c);
      return Approx{y, 16 * kF32Round * std::abs(y) + 1e-30};
    });
  }
}

}  // namespace
}  // namespace skiff::suite

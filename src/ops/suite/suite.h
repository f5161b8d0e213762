// ops/suite/suite.h -- the common part of all tests of the op suite. The suite is one set of cases
// against Ops, run on every backend; expected values are formulas in double, written in the tests.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/ops.h"
#include "ops/pinned_arena.h"
#include "tensor/convert.h"

namespace skiff::suite {

// A device's Ops is made to wait after each operation, so that tensors in page-locked host memory
// do for it too; once as in service, several times over (ops/suite/service.h).
struct Backend {
  std::string name;
  std::function<std::unique_ptr<Ops>()> make;
};
std::vector<Backend> backends();
// Those that run each operation once, and devices that need not wait after each of them: for tests
// whose tensors lie in device memory.
std::vector<Backend> unwaited_backends();
inline void PrintTo(const Backend& backend, std::ostream* to) { *to << backend.name; }

// Unit roundoffs: half the distance from 1 to the next number.
constexpr double kF32Round = 0x1p-24;
constexpr double kBf16Round = 0x1p-8;
inline double round_off(DType t) { return t == DType::kBF16 ? kBf16Round : kF32Round; }

// Gives the same numbers with every standard library, unlike the distributions of <random>.
class Rng {
 public:
  explicit Rng(uint64_t seed) : seed_(seed) {}
  double uniform() { return uniform_draw(seed_, next_++); }  // [0, 1)
  int below(int n) { return static_cast<int>(uniform() * n); }
  // Bell-shaped with deviation 1; never zero.
  double normal();
  std::vector<int32_t> shuffled(int n);  // 0..n-1

 private:
  uint64_t seed_, next_ = 0;
};

// Tensors between guard zones. Outputs start as NaN (or -1), so that elements that were not written
// show.
class Workspace {
 public:
  explicit Workspace(uint64_t seed) : rng(seed) {}

  // Rows are `gap` elements apart; the gaps are guarded too.
  Tensor random(DType dtype, std::initializer_list<int64_t> shape, double scale = 1,
                int64_t gap = 0);
  Tensor ints(const std::vector<int32_t>& values, std::initializer_list<int64_t> shape);
  Tensor ints(const std::vector<int32_t>& values);
  Tensor longs(const std::vector<int64_t>& values);
  Tensor floats(const std::vector<float>& values);
  Tensor output(DType dtype, std::initializer_list<int64_t> shape, int64_t gap = 0);

  // From here on the tensors named may change; all others made so far must stay as they are.
  void begin_op(std::vector<Tensor> writable);
  void end_op();  // expects whole guard zones and unchanged inputs

  Rng rng;

 private:
  struct Block {
    std::span<std::byte> bytes;
    std::vector<std::byte> before;
    Tensor tensor;
  };
  Block& make(DType dtype, std::initializer_list<int64_t> shape, int64_t gap);
  void forgive(Block& block, const Tensor& part);

  PinnedArena memory_;  // page-locked, so that a device can reach it
  std::deque<Block> blocks_;
  std::vector<Tensor> writable_;
};

double at(const Tensor& t, int64_t row, int64_t col = 0);           // any float or int dtype
void put(const Tensor& t, int64_t row, int64_t col, double value);  // floats; rounds
double rounded(double value, DType dtype);
std::vector<std::byte> row_bytes(const Tensor& t, int64_t row);
std::vector<std::byte> all_bytes(const Tensor& t);

// A value and how far the arithmetic may stray from it before the result is rounded.
struct Approx {
  double value, bound;
};
// Each element lies within `bound` plus one rounding to its dtype.
bool is_near(const Tensor& got, const std::function<Approx(int64_t, int64_t)>& want);
void expect_near(const Tensor& got, const std::function<Approx(int64_t, int64_t)>& want);

// f(begin, count) computes rows [begin, begin + count) of one problem and returns their bytes.
// Expects the rows to come out alike in one batch, alone, and in odd pieces.
using RowBytes = std::vector<std::vector<std::byte>>;
void expect_rows_independent(int rows, const std::function<RowBytes(int, int)>& f);
// The same for many rows: f(begin, count) computes rows [begin, begin + count) into `out`, which
// the whole range and ranges of one row to all but one must fill alike.
void expect_ranges_alike(const Tensor& out, const std::function<void(int, int)>& f);

class OpSuite : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override { ops = GetParam().make(); }
  void finish() { ops->wait(ops->mark()); }
  std::unique_ptr<Ops> ops;
};

}  // namespace skiff::suite

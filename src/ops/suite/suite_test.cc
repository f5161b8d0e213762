#include "ops/suite/suite.h"

#include <gtest/gtest-spi.h>

#include <algorithm>
#include <limits>

#include "base/load_error.h"
#include "ops/cpu/cpu_features.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/suite/service.h"
#include "tensor/device_memory.h"

namespace skiff::suite {
namespace {

constexpr size_t kGuard = 256;  // bytes on each side
constexpr auto kGuardByte = std::byte{0xa5};
constexpr auto kUnwritten = std::byte{0xff};  // NaN in every float, -1 in every int

size_t element_bytes(const Tensor& t) { return bytes(t.dtype); }

std::byte* row_data(const Tensor& t, int64_t row) {
  return static_cast<std::byte*>(t.data) +
         static_cast<size_t>(row * t.row_stride) * element_bytes(t);
}

size_t row_size(const Tensor& t) { return static_cast<size_t>(t.cols()) * element_bytes(t); }

// Whether this machine's device has kernels for these options.
bool is_taken(const CudaOptions& options) {
  try {
    return make_cuda_ops(options) != nullptr;
  } catch (const LoadError&) {
    return false;
  }
}

}  // namespace

std::vector<Backend> backends() {
  constexpr const char* kIsaNames[] = {"baseline",   "avx2",       "avx512",
                                       "avx512vnni", "avx512bf16", "amx"};
  std::vector<Backend> out = {{"reference", [] { return make_reference_ops(); }},
                              {"cpu_threads_3", [] { return make_cpu_ops(3); }}};
  for (const cpu::Isa isa : cpu::available_isas()) {
    out.push_back({std::string("cpu_") + kIsaNames[static_cast<size_t>(isa)],
                   [isa] { return make_cpu_ops(CpuOptions{.threads = 1, .isa = isa}); }});
  }
  if (num_cuda_devices() > 0) {
    // Packs experts as tiles; the next two keep them row-major.
    out.push_back(
        {"cuda", [] { return make_cuda_ops({.synchronous = true, .pack_experts = true}); }});
    out.push_back(
        {"cuda_portable", [] { return make_cuda_ops({.synchronous = true, .portable = true}); }});
    out.push_back(
        {"cuda_in_service", [] { return make_in_service([] { return make_cuda_ops({}); }); }});
    const CudaOptions invariant = {.batch_invariant = true};
    if (is_taken(invariant)) {
      out.push_back({"cuda_invariant",
                     [] { return make_cuda_ops({.synchronous = true, .batch_invariant = true}); }});
      out.push_back({"cuda_invariant_in_service",
                     [=] { return make_in_service([=] { return make_cuda_ops(invariant); }); }});
    }
  }
  return out;
}

std::vector<Backend> unwaited_backends() {
  std::vector<Backend> all = backends();
  std::erase_if(all, [](const Backend& b) { return b.name.ends_with("_in_service"); });
  if (num_cuda_devices() > 0) {
    all.push_back({"cuda_gathered", [] { return make_cuda_ops({}); }});
    all.push_back({"cuda_one_by_one", [] { return make_cuda_ops({.gather = false}); }});
    const CudaOptions invariant = {.batch_invariant = true};
    if (is_taken(invariant))
      all.push_back({"cuda_invariant_unwaited", [=] { return make_cuda_ops(invariant); }});
  }
  return all;
}

double Rng::normal() {
  const double x = 2 * (uniform() + uniform() + uniform() - 1.5);  // variance 4 * 3 / 12
  return x == 0 ? 0.5 : x;
}

std::vector<int32_t> Rng::shuffled(int n) {
  std::vector<int32_t> v(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) {
    const int j = below(i + 1);
    v[static_cast<size_t>(i)] = v[static_cast<size_t>(j)];
    v[static_cast<size_t>(j)] = i;
  }
  return v;
}

Workspace::Block& Workspace::make(DType dtype, std::initializer_list<int64_t> shape, int64_t gap) {
  Block& block = blocks_.emplace_back();
  Tensor t = host_tensor(nullptr, dtype, shape);
  t.row_stride += gap;
  const size_t size = static_cast<size_t>(t.rows() * t.row_stride) * element_bytes(t);
  const auto whole = static_cast<int64_t>(size + 2 * kGuard + kTensorAlign);
  const Tensor memory = memory_.take(DType::kU8, {whole});
  block.bytes = {static_cast<std::byte*>(memory.data), static_cast<size_t>(whole)};
  std::ranges::fill(block.bytes, kGuardByte);
  const auto address = reinterpret_cast<uintptr_t>(block.bytes.data()) + kGuard;
  t.data = block.bytes.data() + kGuard + (kTensorAlign - address % kTensorAlign) % kTensorAlign;
  block.tensor = t;
  for (int64_t r = 0; r < t.rows(); ++r) {
    std::fill_n(row_data(t, r), row_size(t), kUnwritten);
  }
  return block;
}

Tensor Workspace::random(DType dtype, std::initializer_list<int64_t> shape, double scale,
                         int64_t gap) {
  const Tensor t = make(dtype, shape, gap).tensor;
  for (int64_t r = 0; r < t.rows(); ++r) {
    for (int64_t c = 0; c < t.cols(); ++c) put(t, r, c, rng.normal() * scale);
  }
  return t;
}

Tensor Workspace::ints(const std::vector<int32_t>& values, std::initializer_list<int64_t> shape) {
  const Tensor t = make(DType::kI32, shape, 0).tensor;
  SKIFF_CHECK_EQ(t.elements(), static_cast<int64_t>(values.size()));
  std::copy(values.begin(), values.end(), t.as<int32_t>());
  return t;
}

Tensor Workspace::ints(const std::vector<int32_t>& values) {
  return ints(values, {static_cast<int64_t>(values.size())});
}

Tensor Workspace::longs(const std::vector<int64_t>& values) {
  const Tensor t = make(DType::kI64, {static_cast<int64_t>(values.size())}, 0).tensor;
  std::copy(values.begin(), values.end(), t.as<int64_t>());
  return t;
}

Tensor Workspace::floats(const std::vector<float>& values) {
  const Tensor t = make(DType::kF32, {static_cast<int64_t>(values.size())}, 0).tensor;
  std::copy(values.begin(), values.end(), t.as<float>());
  return t;
}

Tensor Workspace::output(DType dtype, std::initializer_list<int64_t> shape, int64_t gap) {
  return make(dtype, shape, gap).tensor;
}

void Workspace::begin_op(std::vector<Tensor> writable) {
  writable_ = std::move(writable);
  for (Block& block : blocks_) block.before.assign(block.bytes.begin(), block.bytes.end());
}

// Takes over what `part`, if it lies in this block, now holds; all else must be as it was.
void Workspace::forgive(Block& block, const Tensor& part) {
  const std::byte* data = static_cast<std::byte*>(part.data);
  const std::byte* base = block.bytes.data();
  if (data < base || data >= base + block.bytes.size()) return;
  for (int64_t r = 0; r < part.rows(); ++r) {
    std::copy_n(row_data(part, r), row_size(part),
                block.before.data() + (row_data(part, r) - base));
  }
}

void Workspace::end_op() {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = blocks_[i];
    for (const Tensor& part : writable_) forgive(block, part);
    const auto [now, was] =
        std::mismatch(block.bytes.begin(), block.bytes.end(), block.before.begin());
    if (now == block.bytes.end()) continue;
    const auto first = static_cast<std::byte*>(block.tensor.data) - block.bytes.data();
    ADD_FAILURE() << "tensor " << i << " of the workspace changed at byte "
                  << (now - block.bytes.begin()) - first << " of its data";
  }
}

double at(const Tensor& t, int64_t row, int64_t col) {
  switch (t.dtype) {
    case DType::kF32:
      return t.row<float>(row)[col];
    case DType::kF16:
      return to_float(t.row<F16>(row)[col]);
    case DType::kBF16:
      return to_float(t.row<BF16>(row)[col]);
    case DType::kI32:
      return t.row<int32_t>(row)[col];
    default:
      SKIFF_CHECK(false, "at() of {}", name(t.dtype));
  }
}

void put(const Tensor& t, int64_t row, int64_t col, double value) {
  const auto x = static_cast<float>(value);
  switch (t.dtype) {
    case DType::kF32:
      t.row<float>(row)[col] = x;
      return;
    case DType::kF16:
      t.row<F16>(row)[col] = to_f16(x);
      return;
    case DType::kBF16:
      t.row<BF16>(row)[col] = to_bf16(x);
      return;
    default:
      SKIFF_CHECK(false, "put() to {}", name(t.dtype));
  }
}

double rounded(double value, DType dtype) {
  const auto x = static_cast<float>(value);
  return dtype == DType::kBF16 ? to_float(to_bf16(x)) : x;
}

std::vector<std::byte> row_bytes(const Tensor& t, int64_t row) {
  const std::byte* from = row_data(t, row);
  return {from, from + row_size(t)};
}

std::vector<std::byte> all_bytes(const Tensor& t) {
  std::vector<std::byte> out;
  for (int64_t r = 0; r < t.rows(); ++r) {
    const std::vector<std::byte> row = row_bytes(t, r);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

namespace {

double bound_of(const Approx& expected, DType dtype) {
  return expected.bound + round_off(dtype) * (std::abs(expected.value) + expected.bound) +
         std::numeric_limits<float>::min();
}

}  // namespace

bool is_near(const Tensor& got, const std::function<Approx(int64_t, int64_t)>& want) {
  for (int64_t r = 0; r < got.rows(); ++r)
    for (int64_t c = 0; c < got.cols(); ++c) {
      const Approx expected = want(r, c);
      if (!(std::abs(at(got, r, c) - expected.value) <= bound_of(expected, got.dtype)))
        return false;
    }
  return true;
}

void expect_near(const Tensor& got, const std::function<Approx(int64_t, int64_t)>& want) {
  int failures = 0;
  for (int64_t r = 0; r < got.rows() && failures < 5; ++r) {
    for (int64_t c = 0; c < got.cols() && failures < 5; ++c) {
      const Approx expected = want(r, c);
      const double bound = bound_of(expected, got.dtype), value = at(got, r, c);
      if (std::abs(value - expected.value) <= bound) continue;
      ADD_FAILURE() << "row " << r << ", column " << c << ": " << value << " is not "
                    << expected.value << " within " << bound;
      ++failures;
    }
  }
}

void expect_rows_independent(int rows, const std::function<RowBytes(int, int)>& f) {
  const RowBytes together = f(0, rows);
  ASSERT_EQ(together.size(), static_cast<size_t>(rows));
  const auto expect_piece = [&](int begin, int count) {
    const RowBytes piece = f(begin, count);
    for (int i = 0; i < count; ++i) {
      EXPECT_TRUE(piece[static_cast<size_t>(i)] == together[static_cast<size_t>(begin + i)])
          << "row " << begin + i << " differs when computed in rows [" << begin << ", "
          << begin + count << ") of " << rows;
    }
  };
  for (int r = 0; r < rows; ++r) expect_piece(r, 1);
  for (int size : {2, 3, 5, 8, 13, 16}) {
    for (int r = 0; r < rows; r += size) expect_piece(r, std::min(size, rows - r));
  }
}

void expect_ranges_alike(const Tensor& out, const std::function<void(int, int)>& f) {
  const int rows = static_cast<int>(out.rows());
  f(0, rows);
  RowBytes together;
  for (int r = 0; r < rows; ++r) together.push_back(row_bytes(out, r));
  const auto expect_range = [&](int begin, int count) {
    f(begin, count);
    for (int r = begin; r < begin + count; ++r)
      ASSERT_TRUE(row_bytes(out, r) == together[static_cast<size_t>(r)])
          << "row " << r << " of " << out.cols() << " columns differs when computed in rows ["
          << begin << ", " << begin + count << ") of " << rows;
  };
  for (const int r : {0, rows / 2, rows - 1}) expect_range(r, 1);
  for (const int size : {7, 16, 17, 64, 128, 129, 200, 256, 257, rows - 1})
    for (int r = 0; r < rows && size < rows; r += size) expect_range(r, std::min(size, rows - r));
}

INSTANTIATE_TEST_SUITE_P(Backends, OpSuite, testing::ValuesIn(backends()),
                         [](const auto& info) { return info.param.name; });

TEST(OpSuiteItself, SeesWritesOutsideOutputs) {
  Workspace ws(1);
  const Tensor in = ws.random(DType::kF32, {3, 5}, 1, 2);
  const Tensor out = ws.output(DType::kBF16, {2, 3});
  EXPECT_TRUE(std::isnan(at(out, 1, 2)));
  ws.begin_op({out});
  put(out, 1, 2, 7);
  ws.end_op();
  put(in, 2, 1, 3);
  EXPECT_NONFATAL_FAILURE(ws.end_op(), "tensor 0 of the workspace changed at byte 60");
  ws.begin_op({out});
  put(out, 1, 3, 7);
  EXPECT_NONFATAL_FAILURE(ws.end_op(), "tensor 1 of the workspace changed at byte 12");
  ws.begin_op({in, out});
  put(in, 1, 5, 7);
  EXPECT_NONFATAL_FAILURE(ws.end_op(), "tensor 0 of the workspace changed at byte 48");
}

TEST(OpSuiteItself, SeesWrongValues) {
  Workspace ws(2);
  const Tensor out = ws.random(DType::kF32, {2, 3});
  const auto exactly = [&](int64_t r, int64_t c) { return Approx{at(out, r, c), 0}; };
  expect_near(out, exactly);
  const double value = at(out, 1, 2);
  EXPECT_NONFATAL_FAILURE(
      expect_near(out,
                  [&](int64_t r, int64_t c) {
                    return Approx{r == 1 && c == 2 ? value * (1 + 0x1p-21) : at(out, r, c), 0};
                  }),
      "row 1, column 2");
}

}  // namespace skiff::suite

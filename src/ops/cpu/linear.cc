#include <algorithm>

#include "base/round_up.h"
#include "ops/cpu/backend.h"
#include "ops/cpu/rows.h"

namespace skiff::cpu {
namespace {

constexpr int64_t kTasksPerThread = 8;
constexpr int64_t kManyRows = 32;  // from this number of rows on, rows are copied to
                                   // operand_stride()

// Asks the cache for the place of a result of so many bytes. A task writes some columns of many
// rows, which lie far apart, so the processor does not see where the next ones will go.
constexpr int64_t kRowsAhead = 2;
void ask_for_result(const std::byte* row, int64_t size) {
  constexpr int64_t kLine = 64;
  for (int64_t i = 0; i < size; i += kLine) __builtin_prefetch(row + i, 1);
}

}  // namespace

// Row blocks that read the same panels follow each other.
std::vector<CpuOps::Task> CpuOps::tasks_of(std::span<const Group> groups, int64_t panels,
                                           int narrowest, int widest) const {
  std::vector<Task> tasks;
  const int64_t rows = kernels_.block_rows;
  for (int width = widest;; width /= 2) {
    tasks.clear();
    for (const Group& group : groups)
      for (int64_t p = 0; p < panels; p += width)
        for (int64_t r = 0; r < group.rows; r += rows)
          tasks.push_back({&group, group.row + r, std::min(rows, group.rows - r), p,
                           static_cast<int>(std::min<int64_t>(width, panels - p))});
    if (width <= narrowest ||
        static_cast<int64_t>(tasks.size()) >= kTasksPerThread * pool_.threads())
      return tasks;
  }
}

DType CpuOps::operand_dtype(const PanelShape& shape) const {
  return shape.dtype == DType::kBF16 && kernels_.bf16_operand ? DType::kBF16 : DType::kF32;
}

int64_t CpuOps::operand_stride(const PanelShape& shape) const {
  return round_up(shape.k(), 32) + kRowPadding;
}

Operand CpuOps::operand(const Tensor& x, DType act, std::span<const Group> groups, const Linear& w,
                        const std::function<int64_t(int64_t)>* pick) {
  if (w.format.quantized()) return quantized_operand(x, act, groups, w, pick);
  const PanelShape shape = PanelShape::of(w);
  const int64_t rows = groups.back().row + groups.back().rows;
  const DType dtype = operand_dtype(shape);
  if (!pick && x.dtype == dtype && shape.k() == shape.in && rows < kManyRows)
    return {x.data, x.row_stride};
  const int64_t stride = operand_stride(shape);
  const auto width = static_cast<int64_t>(bytes(dtype));
  auto* to = operand_.take<std::byte>(rows * stride * width);
  parallel_rows(rows, shape.in, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      std::byte* row = to + r * stride * width;
      copy_row(kernels_, row, dtype, row_data(x, pick ? (*pick)(r) : r), x.dtype, shape.in);
      std::fill(row + shape.in * width, row + shape.k() * width, std::byte{0});
    }
  });
  return {to, stride};
}

void CpuOps::product(std::span<const Group> groups, const Operand& a, const Linear& w,
                     const Finish& finish) {
  if (w.format.quantized()) return code_product(groups, a, w, finish);
  const PanelShape shape = PanelShape::of(w);
  const auto width = static_cast<int64_t>(bytes(operand_dtype(shape)));
  const auto weight_width = static_cast<int64_t>(bytes(shape.dtype));
  void (*gemm)(const GemmBlock&) =
      shape.dtype == DType::kBF16 ? kernels_.gemm_bf16 : kernels_.gemm_f32;

  // Wide tasks are of use to many rows only.
  const bool many = std::ranges::any_of(groups, [](const Group& g) { return g.rows >= kManyRows; });
  const std::vector<Task> tasks =
      tasks_of(groups, shape.panels(), 2, many ? kernels_.block_panels : kTaskPanels);
  pool_.parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t i, int thread) {
    const Task& t = tasks[static_cast<size_t>(i)];
    const int64_t cols = int64_t{t.panels} * kPanel, first = t.panel * kPanel, ldc = cols + kPanel;
    float* c = thread_scratch_[static_cast<size_t>(thread)].take<float>(t.rows * ldc);
    gemm({.a = static_cast<const std::byte*>(a.data) + t.row * a.stride * width,
          .lda = a.stride,
          .rows = t.rows,
          .b = static_cast<const std::byte*>(w.weight.data) +
               t.group->expert * shape.expert_bytes() +
               t.panel * shape.panel_elements() * weight_width,
          .panel_stride = shape.panel_elements(),
          .panels = t.panels,
          .k = shape.k(),
          .c = c,
          .ldc = ldc});
    const int64_t real = std::min(cols, shape.out - first);
    for (int64_t r = 0; r < t.rows && real > 0; ++r) finish(t.row + r, first, c + r * ldc, real);
  });
}

void CpuOps::linear(Tensor out, Tensor x, const Linear& w) {
  check_prepared(w);
  const PanelShape shape = PanelShape::of(w);
  SKIFF_CHECK_EQ(out.rows(), x.rows());
  SKIFF_CHECK_EQ(out.cols(), shape.out);
  SKIFF_CHECK_EQ(x.cols(), shape.in);
  if (x.rows() == 0) return;
  const Group all = {0, x.rows(), 0};
  const Operand a = operand(x, x.dtype, {&all, 1}, w, nullptr);
  const float* bias = w.bias ? w.bias.as<float>() : nullptr;
  const auto width = static_cast<int64_t>(bytes(out.dtype));
  product({&all, 1}, a, w, [&](int64_t r, int64_t col, float* values, int64_t n) {
    if (bias) kernels_.add(values, bias + col, n);
    if (r + kRowsAhead < out.rows())
      ask_for_result(row_data(out, r + kRowsAhead) + col * width, n * width);
    copy_row(kernels_, row_data(out, r) + col * width, out.dtype, values, DType::kF32, n);
  });
}

}  // namespace skiff::cpu

#include <sys/mman.h>

#include <algorithm>

#include "base/round_up.h"
#include "ops/cpu/backend.h"
#include "ops/cpu/rows.h"

namespace skiff::cpu {
namespace {

constexpr int64_t kTasksPerThread = 8;
constexpr int64_t kRowsToRepack = 32;  // from this number of rows on, rows are copied to
                                       // operand_stride()

struct Task {
  const Group* group;
  int64_t row, rows;
  int64_t panel;
  int panels;
};

// Cuts a GEMM into tasks. Row blocks that read the same panels follow each other.
std::vector<Task> cut(std::span<const Group> groups, int64_t panels, int width, int64_t row_block) {
  std::vector<Task> tasks;
  for (const Group& group : groups)
    for (int64_t p = 0; p < panels; p += width)
      for (int64_t r = 0; r < group.rows; r += row_block)
        tasks.push_back({&group, group.row + r, std::min(row_block, group.rows - r), p,
                         static_cast<int>(std::min<int64_t>(width, panels - p))});
  return tasks;
}

// Weights are streamed from front to back, which huge pages make cheaper. A refusal is harmless.
void ask_for_huge_pages(const Buffer& buffer) {
  constexpr uintptr_t kHuge = uintptr_t{2} << 20;
  const auto begin = round_up(reinterpret_cast<uintptr_t>(buffer.data()), kHuge);
  const auto end = (reinterpret_cast<uintptr_t>(buffer.data()) + buffer.size()) / kHuge * kHuge;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace

bool CpuOps::multiplies(const WeightFormat& format) const {
  return format == WeightFormat{DType::kF32} || format == WeightFormat{DType::kBF16};
}

void CpuOps::check_prepared(const Linear& w) const {
  SKIFF_CHECK(w.packing == Packing::kPanels, "a weight that prepare() has not seen");
  SKIFF_CHECK(multiplies(w.format) && w.format.dtype == w.weight.dtype, "{} in a tensor of {}",
              describe(w.format), skiff::name(w.weight.dtype));
}

size_t CpuOps::prepared_bytes(const WeightShape& shape, const WeightFormat& keep) const {
  const PanelShape panels{std::max<int64_t>(1, shape.experts), shape.out, shape.in, keep.dtype};
  return Arena::size_of(DType::kF32, shape.bias ? shape.out : 0) +
         static_cast<size_t>(panels.total_bytes());
}

Linear CpuOps::prepare(const Linear& plain, const WeightFormat& keep, Buffer* owner) {
  SKIFF_CHECK(plain.packing == Packing::kPlain);
  SKIFF_CHECK(!plain.format.quantized() && multiplies(keep), "from {} to {}",
              describe(plain.format), describe(keep));
  SKIFF_CHECK(plain.weight.contiguous(), "rows {} apart", plain.weight.row_stride);
  const PanelShape shape = PanelShape::of(plain, keep.dtype);
  const int64_t bias_bytes = round_up(plain.bias ? plain.bias.elements() * 4 : 0, kTensorAlign);
  *owner = Buffer(device(), static_cast<size_t>(bias_bytes + shape.total_bytes()));
  ask_for_huge_pages(*owner);

  Linear out = {.weight = plain.weight,
                .format = keep,
                .packing = Packing::kPanels,
                .experts = plain.experts};
  out.weight.data = owner->data() + bias_bytes;
  out.weight.dtype = keep.dtype;
  pack_panels(owner->data() + bias_bytes, plain, shape, kernels_, pool_);
  if (plain.bias) {
    const int64_t n = plain.bias.elements();
    out.bias = owner->view(DType::kF32, {n});
    copy_row(kernels_, out.bias.data, DType::kF32, plain.bias.data, plain.bias.dtype, n);
  }
  return out;
}

DType CpuOps::operand_dtype(const PanelShape& shape) const {
  return shape.dtype == DType::kBF16 && kernels_.bf16_operand ? DType::kBF16 : DType::kF32;
}

// Rows are padded by a cache line, so that equal columns of neighbouring rows do not compete for
// the same cache sets when the length of a row is a power of two.
int64_t CpuOps::operand_stride(const PanelShape& shape) const {
  return round_up(shape.k(), 32) + 32;
}

Operand CpuOps::operand(const Tensor& x, int64_t rows, const PanelShape& shape,
                        const std::function<int64_t(int64_t)>* pick) {
  const DType dtype = operand_dtype(shape);
  if (!pick && x.dtype == dtype && shape.k() == shape.in && rows < kRowsToRepack)
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
  const PanelShape shape = PanelShape::of(w);
  const auto width = static_cast<int64_t>(bytes(operand_dtype(shape)));
  const auto weight_width = static_cast<int64_t>(bytes(shape.dtype));
  void (*gemm)(const GemmBlock&) =
      shape.dtype == DType::kBF16 ? kernels_.gemm_bf16 : kernels_.gemm_f32;

  int task_panels = kWidestTask;
  std::vector<Task> tasks = cut(groups, shape.panels(), task_panels, kRowBlock);
  while (task_panels > 2 &&
         static_cast<int64_t>(tasks.size()) < kTasksPerThread * pool_.threads()) {
    task_panels /= 2;
    tasks = cut(groups, shape.panels(), task_panels, kRowBlock);
  }
  pool_.parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t i, int thread) {
    const Task& t = tasks[static_cast<size_t>(i)];
    const int64_t cols = t.panels * kPanel, first = t.panel * kPanel;
    float* c = thread_scratch_[static_cast<size_t>(thread)].take<float>(t.rows * cols);
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
          .ldc = cols});
    const int64_t real = std::min(cols, shape.out - first);
    for (int64_t r = 0; r < t.rows && real > 0; ++r) finish(t.row + r, first, c + r * cols, real);
  });
}

void CpuOps::linear(Tensor out, Tensor x, const Linear& w) {
  check_prepared(w);
  const PanelShape shape = PanelShape::of(w);
  SKIFF_CHECK_EQ(out.rows(), x.rows());
  SKIFF_CHECK_EQ(out.cols(), shape.out);
  SKIFF_CHECK_EQ(x.cols(), shape.in);
  if (x.rows() == 0) return;
  const Operand a = operand(x, x.rows(), shape, nullptr);
  const Group all = {0, x.rows(), 0};
  const float* bias = w.bias ? w.bias.as<float>() : nullptr;
  const auto width = static_cast<int64_t>(bytes(out.dtype));
  product({&all, 1}, a, w, [&](int64_t r, int64_t col, float* values, int64_t n) {
    if (bias) kernels_.add(values, bias + col, n);
    copy_row(kernels_, row_data(out, r) + col * width, out.dtype, values, DType::kF32, n);
  });
}

}  // namespace skiff::cpu

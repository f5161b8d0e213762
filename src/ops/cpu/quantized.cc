#include "ops/cpu/quantized.h"

#include <algorithm>
#include <cstring>

#include "base/round_up.h"
#include "ops/cpu/backend.h"
#include "ops/cpu/rows.h"
#include "weights/codes.h"

namespace skiff::cpu {

int64_t spread_begin(const CodeShape& shape, int64_t group, int64_t step) {
  return group * round_up(shape.format.block_in, step);
}

int64_t spread_inputs(const CodeShape& shape, int64_t step) {
  const int64_t last = shape.groups() - 1;
  return spread_begin(shape, last, step) + round_up(shape.group_size(last), step);
}

int64_t input_groups(const CodeShape& shape) {
  const auto& input = shape.format.input;
  const bool groups = input && input->scales == InputFormat::kGroups;
  return groups ? num_blocks(shape.in, InputFormat::kGroup) : 1;
}

std::vector<Span> spans_of(const CodeShape& shape, int64_t step) {
  const bool input_groups = cpu::input_groups(shape) > 1;
  std::vector<Span> spans;
  for (int64_t g = 0; g < shape.groups(); ++g) {
    const int64_t size = shape.group_size(g), most = input_groups ? InputFormat::kGroup : kSpan;
    for (int64_t i = 0; i < size; i += most) {
      const int64_t inputs = std::min(most, size - i);
      const int64_t first = shape.group_begin(g) + i;  // the first column of x
      spans.push_back({.begin = spread_begin(shape, g, step) + i,
                       .length = round_up(inputs, step),
                       .line = shape.line(g) + i / shape.line_inputs(),
                       .lines = round_up(inputs, shape.line_inputs()) / shape.line_inputs(),
                       .group = g,
                       .input_group = input_groups ? first / InputFormat::kGroup : 0,
                       .opens = i == 0 || (input_groups && first % InputFormat::kGroup == 0),
                       .closes = true});
    }
  }
  // A sum goes on through spans that do not open one.
  for (size_t i = 0; i + 1 < spans.size(); ++i) spans[i].closes = spans[i + 1].opens;
  return spans;
}

std::vector<CodeSum> sums_of(const CodeShape& shape, const std::vector<Span>& spans) {
  std::vector<CodeSum> sums;
  for (const Span& span : spans) {
    if (span.opens)
      sums.push_back({.begin = span.begin,
                      .line = span.line,
                      .group = span.group,
                      .value = shape.format.zero ? span.group : span.input_group});
    sums.back().lines += span.lines;
  }
  return sums;
}

bool nests(const WeightFormat& format) {
  const bool groups = format.input && format.input->scales == InputFormat::kGroups;
  constexpr int kGroup = InputFormat::kGroup;
  return !groups || format.block_in == 0 || format.block_in % kGroup == 0 ||
         kGroup % format.block_in == 0;
}

// Rounds a row of activations, which becomes codes, and stores their scales. Where one of them is
// no number, the scale is none, and no result of the row is.
void CpuOps::round_input(float* x, float* scales, const CodeShape& shape, float fixed) const {
  const InputFormat& format = *shape.format.input;
  const bool integers = format.dtype == DType::kI8;
  const bool groups = format.scales == InputFormat::kGroups;
  const int64_t size = groups ? InputFormat::kGroup : shape.in;
  for (int64_t i = 0; i < shape.in; i += size) {
    const int64_t n = std::min(size, shape.in - i);
    const float most = kernels_.max_abs(x + i, n);
    float scale = fixed;
    if (std::isnan(most))
      scale = most;
    else if (format.scales == InputFormat::kGroups)
      scale = std::max(most, InputFormat::kLeastMax) / (integers ? 127.0f : 448.0f);
    else if (format.scales == InputFormat::kToken)
      scale = most == 0 ? 1 : most / (integers ? 127.0f : 448.0f);
    if (integers)
      kernels_.round_integers(x + i, scale, -128, 127, Ties::kEven, n);
    else
      kernels_.round_e4m3(x + i, scale, n);
    scales[i / size] = scale;
  }
}

// Writes a row of the operand `a`: in the order of the weight's columns, rounded, and with its
// groups spread; and beside it the row's scales, or the sums of its groups where codes have a zero
// point.
void CpuOps::fill_row(CodeRow to, const Operand& a, const Linear& w, int64_t expert) const {
  const CodeShape shape = CodeShape::of(w);
  if (w.order) {
    const int32_t* order = w.order.as<int32_t>();
    for (int64_t i = 0; i < shape.in; ++i) to.spare[i] = to.x[order[i]];
    std::swap(to.x, to.spare);
  }
  if (shape.format.input)
    round_input(to.x, to.values, shape, w.input_scale ? w.input_scale.as<float>()[expert] : 0);
  return a.integers ? fill_integers(to, a, shape) : fill_floats(to, a, shape);
}

void CpuOps::fill_floats(const CodeRow& to, const Operand& a, const CodeShape& shape) const {
  const DType dtype = a.narrow ? DType::kBF16 : DType::kF32;
  for (int64_t g = 0; g < shape.groups(); ++g) {
    const int64_t size = shape.group_size(g), padded = round_up(size, a.step);
    const float* from = to.x + shape.group_begin(g);
    std::byte* group = to.row + spread_begin(shape, g, a.step) * a.width;
    copy_row(kernels_, group, dtype, from, DType::kF32, size);
    std::fill(group + size * a.width, group + padded * a.width, std::byte{0});
    if (!shape.format.zero) continue;
    double sum = 0;
    for (int64_t i = 0; i < size; ++i) sum += from[i];
    to.values[g] = static_cast<float>(sum);
  }
}

Operand CpuOps::code_operand(const CodeShape& shape, DType act) const {
  if (shape.integers()) return integer_operand(shape);
  const bool narrow = kernels_.bf16_operand && (act == DType::kBF16 || shape.format.input);
  const int64_t step = narrow ? kKStep : shape.line_inputs();
  return {.stride = spread_inputs(shape, step) + kRowPadding,
          .narrow = narrow,
          .width = narrow ? 2 : 4,
          .step = step,
          .value_stride = shape.format.zero ? shape.groups() : input_groups(shape)};
}

Operand CpuOps::quantized_operand(const Tensor& x, DType act, std::span<const Group> groups,
                                  const Linear& w, const std::function<int64_t(int64_t)>* pick) {
  const CodeShape shape = CodeShape::of(w);
  Operand a = code_operand(shape, act);
  const bool same = !pick && !w.order && !shape.format.input && !shape.format.zero;
  if (same && a.stride == shape.in + kRowPadding &&
      x.dtype == (a.narrow ? DType::kBF16 : DType::kF32)) {
    a.data = x.data;
    a.stride = x.row_stride;
    return a;
  }
  const int64_t rows = groups.back().row + groups.back().rows;
  auto* data = operand_.take<std::byte>(rows * a.stride * a.width);
  float* values = row_values_.take<float>(rows * a.value_stride);
  a.data = data;
  a.values = values;
  for (const Group& group : groups)
    parallel_rows(group.rows, shape.in, [&](int64_t begin, int64_t end, int thread) {
      float* row = thread_scratch_[static_cast<size_t>(thread)].take<float>(2 * shape.in);
      for (int64_t r = group.row + begin; r < group.row + end; ++r) {
        copy_row(kernels_, row, DType::kF32, row_data(x, pick ? (*pick)(r) : r), x.dtype, shape.in);
        fill_row({.row = data + r * a.stride * a.width,
                  .values = values + r * a.value_stride,
                  .x = row,
                  .spare = row + shape.in},
                 a, w, group.expert);
      }
    });
  return a;
}

// One task of a quantized product: rows of an operand times a few panels of an expert.
struct CpuOps::CodeTask {
  const Operand& a;
  const Linear& w;
  const CodeShape& shape;
  const std::vector<Span>& spans;
  const std::vector<CodeSum>& sums;
  int64_t row, rows, expert, panel;
  int panels;
  // Scratch: the result [rows][ldc()], sums of the panels in work, their scales and minima, and
  // values of codes.
  float *c, *part, *scales, *minima, *values;

  const uint32_t* words() const {
    return static_cast<const uint32_t*>(w.weight.data) +
           expert * shape.panels() * shape.panel_words();
  }
  CodeLines lines(const Span& span, int first) const {
    const LinePlace place = shape.place(panel + first);
    return {words() + place.first + span.line * place.step, place.step, span.lines};
  }
  int64_t ldc() const { return int64_t{panels + 1} * kPanel; }
  const void* inputs(const Span& span) const {
    return static_cast<const std::byte*>(a.data) + (row * a.stride + span.begin) * a.width;
  }
};

// Sums one span of a pair of panels: their values are expanded in the cache and multiplied there.
void CpuOps::code_span(const CodeTask& t, const Span& span, int first, int count) const {
  const int64_t filled = span.lines * t.shape.line_inputs() * kPanel * t.a.width;
  const int64_t panel_bytes = span.length * kPanel * t.a.width;
  const auto expand = t.a.narrow ? kernels_.expand_bf16 : kernels_.expand_f32;
  for (int p = 0; p < count; ++p) {
    std::byte* to = reinterpret_cast<std::byte*>(t.values) + p * panel_bytes;
    expand(to, t.lines(span, first + p), codes_of(t.shape.format.dtype));
    std::fill(to + filled, to + panel_bytes, std::byte{0});
  }
  const auto gemm = t.a.narrow ? kernels_.gemm_bf16 : kernels_.gemm_f32;
  gemm({.a = t.inputs(span),
        .lda = t.a.stride,
        .rows = t.rows,
        .b = t.values,
        .panel_stride = span.length * kPanel,
        .panels = count,
        .k = span.length,
        .c = t.part,
        .ldc = int64_t{count} * kPanel,
        .add = !span.opens});
}

CpuOps::RowsKernel CpuOps::rows_kernel(const Operand& a, int64_t rows) const {
  if (a.integers) return {kernels_.int_rows, rows};
  if (rows > (a.narrow ? kernels_.most_code_rows : kFewRows)) return {};
  if (a.narrow) return {kernels_.code_rows_bf16, kernels_.code_rows_at_once};
  return {kernels_.few_rows_f32, kFewRows};
}

// Loads the scales and minima of `groups` groups of some panels of a task.
void CpuOps::load_code_scales(const CodeTask& t, int first, int count, int64_t group,
                              int64_t groups) const {
  const auto& zero = t.shape.format.zero;
  for (int p = 0; p < count; ++p) {
    const CodeBlocks blocks = {t.expert, t.panel + first + p, group, groups};
    const int64_t to = p * groups * kPanel;
    load_scales(t.scales + to, t.w.scale, t.shape, blocks, kernels_);
    if (zero) load_scales(t.minima + to, t.w.zero, t.shape, blocks, kernels_);
  }
  if (!zero || !is_small_integer(*zero)) return;
  for (int64_t j = 0; j < count * groups * kPanel; ++j) t.minima[j] *= t.scales[j];
}

// Rows meet codes in registers. The sums are taken in turns, as many as there is room for scales
// of.
void CpuOps::code_rows(const CodeTask& t, const RowsKernel& kernel) const {
  const WeightFormat& format = t.shape.format;
  const auto size = static_cast<int64_t>(t.sums.size());
  for (int64_t i = 0, next = 0; i < size; i = next) {
    const CodeSum* sums = &t.sums[static_cast<size_t>(i)];
    while (next < size && sums[next - i].group < sums->group + kScaleGroups) ++next;
    const int64_t groups = sums[next - i - 1].group + 1 - sums->group;
    load_code_scales(t, 0, t.panels, sums->group, groups);
    CodeRows rows = {.lda = t.a.stride,
                     .b = t.words() + t.panel * t.shape.panel_words(),
                     .panel_words = t.shape.panel_words(),
                     .panels = t.panels,
                     .codes = codes_of(format.dtype),
                     .offset = t.shape.offset(),
                     .sums = sums,
                     .count = next - i,
                     .scale = t.scales,
                     .minimum = format.zero ? t.minima : nullptr,
                     .groups = groups,
                     .value_stride = t.a.value_stride,
                     .ldc = t.ldc(),
                     .first = i == 0};
    for (int64_t r = 0; r < t.rows; r += rows.rows) {
      const int64_t row = t.row + r;
      rows.a = static_cast<const std::byte*>(t.a.data) + row * t.a.stride * t.a.width;
      rows.rows = static_cast<int>(std::min(t.rows - r, kernel.rows));
      if (format.zero || format.input) rows.values = t.a.values + row * t.a.value_stride;
      rows.c = t.c + r * t.ldc();
      kernel.multiply(rows);
    }
  }
}

// Many rows meet the values of a pair of panels in the cache.
void CpuOps::many_code_rows(const CodeTask& t, int first) const {
  bool opens = true;
  for (const Span& span : t.spans) {
    code_span(t, span, first, 2);
    if (!span.closes) continue;
    close_sum(t, span, first, 2, opens);
    opens = false;
  }
}

// Multiplies sums by their scales and adds them to the result, which the first of them opens.
void CpuOps::close_sum(const CodeTask& t, const Span& span, int first, int count,
                       bool opens) const {
  const WeightFormat& format = t.shape.format;
  load_code_scales(t, first, count, span.group, 1);
  ScaledSum sum{.part = t.part,
                .rows = t.rows,
                .cols = int64_t{count} * kPanel,
                .scale = t.scales,
                .row_stride = t.a.value_stride,
                .c = t.c + int64_t{first} * kPanel,
                .ldc = t.ldc(),
                .first = opens};
  const float* row = t.a.values + t.row * t.a.value_stride;
  if (format.zero) {
    sum.minimum = t.minima;
    sum.row_sum = row + span.group;
  } else if (format.input) {
    sum.row_scale = row + span.input_group;
  }
  kernels_.scaled_sum(sum);
}

void CpuOps::code_product(std::span<const Group> groups, const Operand& a, const Linear& w,
                          const Finish& finish) {
  const CodeShape shape = CodeShape::of(w);
  const std::vector<Span> spans = a.integers ? std::vector<Span>() : spans_of(shape, a.step);
  const std::vector<CodeSum> sums =
      a.integers ? sums_of(integer_pieces(shape)) : sums_of(shape, spans);
  const std::vector<Task> tasks = tasks_of(groups, shape.panels(), kBand, kernels_.block_panels);
  // Tasks of few rows read codes in one stream, which is faster if it goes on from task to task.
  pool_.parallel_stretches(std::ssize(tasks), [&](int64_t i, int thread) {
    const Task& t = tasks[static_cast<size_t>(i)];
    // The end of a task would otherwise wait for the scales of the next one.
    if (const auto next = static_cast<size_t>(i + 1); next < tasks.size()) {
      const Task& n = tasks[next];
      ask_for_scales(w.scale, shape, n.group->expert, n.panel, n.panels);
      ask_for_scales(w.zero, shape, n.group->expert, n.panel, n.panels);
    }
    const int64_t cols = int64_t{t.panels} * kPanel, first = t.panel * kPanel;
    float* c = thread_scratch_[static_cast<size_t>(thread)].take<float>(code_task_floats());
    float *part = c + task_floats(), *scales = part + int64_t{kernels_.block_rows} * 2 * kPanel;
    const CodeTask task = {a,
                           w,
                           shape,
                           spans,
                           sums,
                           t.row,
                           t.rows,
                           t.group->expert,
                           t.panel,
                           t.panels,
                           c,
                           part,
                           scales,
                           scales + code_scales(),
                           scales + 2 * code_scales()};
    if (const RowsKernel kernel = rows_kernel(a, t.rows); kernel.multiply)
      code_rows(task, kernel);
    else
      for (int p = 0; p < t.panels; p += 2) many_code_rows(task, p);
    const int64_t real = std::min(cols, shape.out - first);
    for (int64_t r = 0; r < t.rows && real > 0; ++r)
      finish(t.row + r, first, c + r * task.ldc(), real);
  });
}

}  // namespace skiff::cpu

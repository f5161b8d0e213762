#include "ops/cpu/code_panels.h"

#include <algorithm>
#include <cstring>

#include "base/round_up.h"
#include "ops/cpu/panels.h"
#include "ops/cpu/rows.h"
#include "tensor/convert.h"
#include "weights/codes.h"

namespace skiff::cpu {
namespace {

// Returns the bit of a word at which its input i begins, counted from the lowest bit.
unsigned bit_of(int64_t i, int bits) {
  if (bits == 8) return static_cast<unsigned>(i) * 8;
  return static_cast<unsigned>(i / 2 + i % 2 * 4) * 4;
}

unsigned code_at(const uint8_t* codes, int bits, int64_t index) {
  if (bits == 8) return codes[index];
  return index % 2 ? codes[index / 2] >> 4 : codes[index / 2] & 15u;
}

void put_scale(const Tensor& to, int64_t index, float value) {
  switch (to.dtype) {
    case DType::kF32:
      to.as<float>()[index] = value;
      return;
    case DType::kF16:
      to.as<F16>()[index] = to_f16(value);
      return;
    default:
      to.as<BF16>()[index] = to_bf16(value);
  }
}

// Rows of blocks become rows of panels, unless outputs share them. Outputs that only fill up the
// last panels have scale 0.
void pack_scales(const Tensor& to, const Tensor& from, const CodeShape& shape) {
  const int64_t groups = shape.groups(), rows = num_blocks(shape.out, shape.format.block_out);
  for (int64_t i = 0; i < to.elements(); ++i) put_scale(to, i, 0);
  for (int64_t e = 0; e < shape.experts; ++e)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t within =
            shape.shared() ? r * groups + g : (r / kPanel * groups + g) * kPanel + r % kPanel;
        put_scale(to, e * shape.scale_rows() * shape.scale_cols() + within,
                  code_value(from.data, from.dtype, (e * rows + r) * groups + g));
      }
}

}  // namespace

Codes codes_of(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return Codes::kI8;
    case DType::kU8:
      return Codes::kU8;
    case DType::kF8E4M3:
      return Codes::kF8E4M3;
    case DType::kI4:
      return Codes::kI4;
    case DType::kU4:
      return Codes::kU4;
    case DType::kF4E2M1:
      return Codes::kF4E2M1;
    default:
      SKIFF_CHECK(false, "codes of {}", name(dtype));
  }
}

CodeShape CodeShape::of(const Linear& w) {
  const PanelShape plain = PanelShape::of(w);
  return {plain.experts, plain.out, plain.in, w.format};
}

int64_t CodeShape::panels() const { return round_up(out, int64_t{2} * kPanel) / kPanel; }

int64_t CodeShape::group_size(int64_t group) const {
  return format.block_in == 0 ? in : std::min<int64_t>(format.block_in, in - group_begin(group));
}

int64_t CodeShape::line(int64_t group) const {
  if (group == 0) return 0;
  const auto lines = [&](int64_t size) { return round_up(size, line_inputs()) / line_inputs(); };
  if (group < groups()) return group * lines(format.block_in);
  return (group - 1) * lines(format.block_in) + lines(group_size(group - 1));
}

bool CodeShape::integers() const {
  return format.input && format.input->dtype == DType::kI8 && is_small_integer(format.dtype);
}

int CodeShape::offset() const {
  if (!integers()) return 0;
  return format.dtype == DType::kI8 ? 128 : format.dtype == DType::kI4 ? 8 : 0;
}

DType CodeShape::zero_dtype() const {
  const DType zero = format.zero.value_or(DType::kF32);
  return is_small_integer(zero) ? DType::kBF16 : zero;
}

int64_t CodeShape::scale_rows() const {
  return shared() ? num_blocks(out, format.block_out) : panels();
}

int64_t CodeShape::scale_cols() const { return groups() * (shared() ? 1 : kPanel); }

void pack_codes(const Linear& to, const Linear& plain, const CodeShape& shape, ThreadPool& pool) {
  const int width = bits(shape.format.dtype);
  const auto* from = static_cast<const uint8_t*>(plain.weight.data);
  auto* words = static_cast<uint32_t*>(to.weight.data);
  const auto top = static_cast<unsigned>(shape.offset());  // adding the top bit inverts it
  pool.parallel_for(shape.experts * shape.panels(), [&](int64_t task, int) {
    const int64_t expert = task / shape.panels(), number = task % shape.panels();
    const int64_t first = number * kPanel;
    const LinePlace place = shape.place(number);
    uint32_t* panel = words + expert * shape.panels() * shape.panel_words() + place.first;
    for (int64_t line = 0; line < shape.line(shape.groups()); ++line)
      std::fill_n(panel + line * place.step, kPanel, 0u);
    for (int64_t o = first; o < std::min<int64_t>(shape.out, first + kPanel); ++o)
      for (int64_t g = 0; g < shape.groups(); ++g) {
        const int64_t begin = (expert * shape.out + o) * shape.in + shape.group_begin(g);
        uint32_t* word = panel + shape.line(g) * place.step + (o - first);
        for (int64_t i = 0; i < shape.group_size(g); ++i)
          word[i / shape.line_inputs() * place.step] |= (code_at(from, width, begin + i) ^ top)
                                                        << bit_of(i % shape.line_inputs(), width);
      }
  });
  pack_scales(to.scale, plain.scale, shape);
  if (plain.zero) pack_scales(to.zero, plain.zero, shape);
}

void ask_for_scales(const Tensor& scales, const CodeShape& shape, int64_t expert, int64_t panel,
                    int64_t panels) {
  if (!scales || shape.shared()) return;
  constexpr int64_t kLine = 64;
  const int64_t cols = shape.scale_cols() * static_cast<int64_t>(bytes(scales.dtype));
  const auto* data =
      static_cast<const std::byte*>(scales.data) + (expert * shape.scale_rows() + panel) * cols;
  for (int64_t i = 0; i < panels * cols; i += kLine) __builtin_prefetch(data + i, 0, 2);
}

void load_scales(float* out, const Tensor& scales, const CodeShape& shape, const CodeBlocks& blocks,
                 const Kernels& kernels) {
  const int64_t cols = shape.scale_cols(), base = blocks.expert * shape.scale_rows() * cols;
  const auto* data = static_cast<const std::byte*>(scales.data);
  const auto width = static_cast<int64_t>(bytes(scales.dtype));
  if (!shape.shared()) {
    const int64_t first = base + blocks.panel * cols + blocks.group * kPanel;
    return copy_row(kernels, out, DType::kF32, data + first * width, scales.dtype,
                    blocks.groups * kPanel);
  }
  const int64_t block = shape.format.block_out ? shape.format.block_out : shape.out;
  const int64_t first = blocks.panel * kPanel, end = first + kPanel;
  // Outputs beyond the last one have the scale of the last one.
  const int64_t last = shape.out - 1;
  for (int64_t g = 0; g < blocks.groups; ++g, out += kPanel)
    for (int64_t o = first; o < end;) {
      const int64_t row = std::min(last, o) / block;
      const int64_t next = (row + 1) * block > last ? end : std::min(end, (row + 1) * block);
      const float value =
          code_value(scales.data, scales.dtype, base + row * cols + blocks.group + g);
      std::fill(out + o - first, out + next - first, value);
      o = next;
    }
}

}  // namespace skiff::cpu

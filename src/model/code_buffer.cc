#include "model/code_buffer.h"

#include <algorithm>

#include "base/round_up.h"

namespace skiff::model {
namespace {

int64_t block_rows(const Slot& slot, const WeightFormat& format) {  // rows of scales of one expert
  return num_blocks(slot.out, format.block_out);
}

int64_t matrices(const Slot& slot) { return std::max<int64_t>(1, slot.experts); }

void grow(Buffer& buffer, Device device, size_t size) {
  if (size > buffer.size()) buffer = Buffer(device, size);
}

// The layout of a piece of memory for some rows of a weight: elements, scales and zero points.
struct Piece {
  int64_t rows, cols;  // the shape of the scales
  size_t scales, zeros, end;

  Piece(const Slot& slot, const WeightFormat& format, int64_t out)
      : rows(num_blocks(out, format.block_out)), cols(num_blocks(slot.in, format.block_in)) {
    scales = round_up(byte_size(format.dtype, out * slot.in), kTensorAlign);
    zeros = scales + round_up(byte_size(*format.scale, rows * cols), kTensorAlign);
    end = zeros + (format.zero ? byte_size(*format.zero, rows * cols) : 0);
  }
};

}  // namespace

size_t CodeBuffer::piece_bytes(const Slot& slot, const WeightFormat& format, int64_t rows) {
  return Piece(slot, format, rows).end;
}

Linear CodeBuffer::piece(const Slot& slot, const WeightFormat& format, int64_t rows,
                         std::byte* memory) {
  const Piece at(slot, format, rows);
  Linear out{.format = format};
  out.weight = host_tensor(memory, format.dtype, {rows, slot.in});
  out.scale = host_tensor(memory + at.scales, *format.scale, {at.rows, at.cols});
  if (format.zero) out.zero = host_tensor(memory + at.zeros, *format.zero, {at.rows, at.cols});
  return out;
}

void CodeBuffer::reserve(const Slot& slot, const WeightFormat& format) {
  const int64_t scales =
      matrices(slot) * block_rows(slot, format) * num_blocks(slot.in, format.block_in);
  grow(codes_, device_, byte_size(format.dtype, slot.elements()));
  grow(scales_, device_, byte_size(format.scale.value(), scales));
  if (format.zero) grow(zeros_, device_, byte_size(*format.zero, scales));
}

Linear CodeBuffer::view(const Slot& slot, const WeightFormat& format) const {
  const int64_t rows = block_rows(slot, format), cols = num_blocks(slot.in, format.block_in);
  const auto stacked = [&](const Buffer& buffer, DType dtype, int64_t down, int64_t across) {
    return slot.experts ? buffer.view(dtype, {slot.experts, down, across})
                        : buffer.view(dtype, {down, across});
  };
  Linear out{.format = format, .experts = slot.experts};
  out.weight = stacked(codes_, format.dtype, slot.out, slot.in);
  out.scale = stacked(scales_, *format.scale, rows, cols);
  if (format.zero) out.zero = stacked(zeros_, *format.zero, rows, cols);
  return out;
}

Linear CodeBuffer::rows(const Slot& slot, const WeightFormat& format, int64_t first,
                        int64_t rows) const {
  const int64_t expert = first / slot.out, within = first % slot.out;
  const int64_t block = format.block_out ? format.block_out : slot.out;
  SKIFF_CHECK(within % block == 0 && within + rows <= slot.out, "rows [{}, {}) of {}", within,
              within + rows, slot.out);
  const int64_t per_expert = block_rows(slot, format);
  Linear out{.format = format};
  out.weight =
      codes_.view(format.dtype, {slot.elements() / slot.in, slot.in}).row_range(first, rows);
  const auto blocks = [&](const Buffer& buffer, DType dtype) {
    return buffer.view(dtype, {matrices(slot) * per_expert, num_blocks(slot.in, format.block_in)})
        .row_range(expert * per_expert + within / block, (rows + block - 1) / block);
  };
  out.scale = blocks(scales_, *format.scale);
  if (format.zero) out.zero = blocks(zeros_, *format.zero);
  return out;
}

}  // namespace skiff::model

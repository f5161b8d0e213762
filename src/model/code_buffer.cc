#include "model/code_buffer.h"

#include <algorithm>

namespace skiff::model {
namespace {

int64_t block_rows(const Slot& slot, const WeightFormat& format) {  // of one expert
  return num_blocks(slot.out, format.block_out);
}

int64_t matrices(const Slot& slot) { return std::max<int64_t>(1, slot.experts); }

void grow(Buffer& buffer, Device device, size_t size) {
  if (size > buffer.size()) buffer = Buffer(device, size);
}

}  // namespace

void CodeBuffer::reserve(const Slot& slot, const WeightFormat& format) {
  const int64_t scales =
      matrices(slot) * block_rows(slot, format) * num_blocks(slot.in, format.block_in);
  grow(codes_, device_, byte_size(format.dtype, slot.elements()));
  grow(scales_, device_, byte_size(format.scale.value(), scales));
}

Linear CodeBuffer::view(const Slot& slot, const WeightFormat& format) const {
  const int64_t rows = block_rows(slot, format), cols = num_blocks(slot.in, format.block_in);
  Linear out{.format = format, .experts = slot.experts};
  if (slot.experts) {
    out.weight = codes_.view(format.dtype, {slot.experts, slot.out, slot.in});
    out.scale = scales_.view(*format.scale, {slot.experts, rows, cols});
  } else {
    out.weight = codes_.view(format.dtype, {slot.out, slot.in});
    out.scale = scales_.view(*format.scale, {rows, cols});
  }
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
  out.scale =
      scales_
          .view(*format.scale, {matrices(slot) * per_expert, num_blocks(slot.in, format.block_in)})
          .row_range(expert * per_expert + within / block, (rows + block - 1) / block);
  return out;
}

}  // namespace skiff::model

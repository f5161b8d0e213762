#include <algorithm>
#include <array>
#include <cstring>

#include "base/round_up.h"
#include "ops/reference/reference_ops.h"
#include "ops/reference/rows.h"
#include "weights/codes.h"

namespace skiff::reference {
namespace {

// The parts of a prepared weight, each at a multiple of kTensorAlign.
struct Parts {
  struct Part {
    DType dtype = DType::kF32;
    int64_t elements = 0;
    size_t at = 0;
  };
  Part bias, scale, zero, input_scale, order, weight;
  size_t bytes = 0;

  Parts(const WeightShape& shape, const WeightFormat& keep) {
    const int64_t stack = std::max<int64_t>(1, shape.experts);
    const int64_t blocks =
        stack * num_blocks(shape.out, keep.block_out) * num_blocks(shape.in, keep.block_in);
    bias = {DType::kF32, shape.bias ? shape.out : 0};
    scale = {keep.scale.value_or(DType::kF32), keep.scale ? blocks : 0};
    zero = {keep.zero.value_or(DType::kF32), keep.zero ? blocks : 0};
    input_scale = {DType::kF32,
                   keep.input && keep.input->scales == InputFormat::kStatic ? stack : 0};
    order = {DType::kI32, shape.order ? shape.in : 0};
    weight = {keep.dtype, stack * shape.out * shape.in};
    for (Part* part : {&bias, &scale, &zero, &input_scale, &order, &weight}) {
      part->at = round_up(bytes, kTensorAlign);
      bytes = part->at + size_of(*part);
    }
  }
  static size_t size_of(const Part& part) {
    return static_cast<size_t>((part.elements * bits(part.dtype) + 7) / 8);
  }
};

// Copies `from` to its part of `owner`, and returns it there.
Tensor placed(const Buffer& owner, const Parts::Part& part, const Tensor& from) {
  Tensor out = from;
  out.data = owner.data() + part.at;
  out.dtype = part.dtype;
  SKIFF_CHECK_EQ(from.elements(), part.elements);
  if (from.dtype != part.dtype) {
    convert(out, from);
  } else {
    SKIFF_CHECK(from.contiguous(), "rows {} apart", from.row_stride);
    std::memcpy(out.data, from.data, Parts::size_of(part));
  }
  return out;
}

}  // namespace

bool ReferenceOps::multiplies(const WeightFormat& format) const { return has_meaning(format); }

size_t ReferenceOps::prepared_bytes(const WeightShape& shape, const WeightFormat& keep) const {
  return Parts(shape, keep).bytes;
}

Linear ReferenceOps::prepare(const Linear& plain, const WeightFormat& keep, Buffer* owner) {
  SKIFF_CHECK(plain.packing == Packing::kPlain);
  SKIFF_CHECK(
      multiplies(keep) && (plain.format.quantized() ? plain.format == keep : !keep.quantized()),
      "from {} to {}", describe(plain.format), describe(keep));
  const auto& dim = plain.weight.dim;
  const bool stack = plain.experts > 0;
  const Parts parts({.experts = plain.experts,
                     .out = stack ? dim[1] : dim[0],
                     .in = stack ? dim[2] : dim[1],
                     .bias = bool{plain.bias},
                     .order = bool{plain.order}},
                    keep);
  *owner = Buffer(device(), parts.bytes);
  Linear out{.format = keep, .experts = plain.experts};
  out.weight = placed(*owner, parts.weight, plain.weight);
  if (plain.bias) out.bias = placed(*owner, parts.bias, plain.bias);
  if (keep.scale) out.scale = placed(*owner, parts.scale, plain.scale);
  if (keep.zero) out.zero = placed(*owner, parts.zero, plain.zero);
  if (parts.input_scale.elements)
    out.input_scale = placed(*owner, parts.input_scale, plain.input_scale);
  if (plain.order) out.order = placed(*owner, parts.order, plain.order);
  return out;
}

void ReferenceOps::quantize(const Linear& q, Tensor plain, QuantRule rule) {
  const WeightFormat& format = q.format;
  SKIFF_CHECK(fits(rule, format), "{}", describe(format));
  const int64_t out = plain.rows(), in = plain.cols();
  const int64_t block_out = format.block_out ? format.block_out : out;
  const int64_t block_in = format.block_in ? format.block_in : in;
  const int64_t blocks = num_blocks(in, format.block_in);
  std::vector<std::vector<float>> rows;
  for (int64_t r = 0; r < out; ++r) rows.push_back(load_row(plain, r));
  for (int64_t r0 = 0; r0 < out; r0 += block_out)
    for (int64_t c0 = 0; c0 < in; c0 += block_in) {
      const int64_t r1 = std::min(out, r0 + block_out), c1 = std::min(in, c0 + block_in);
      float low = 0, high = 0;
      for (int64_t r = r0; r < r1; ++r)
        for (int64_t c = c0; c < c1; ++c) {
          low = std::min(low, rows[static_cast<size_t>(r)][static_cast<size_t>(c)]);
          high = std::max(high, rows[static_cast<size_t>(r)][static_cast<size_t>(c)]);
        }
      const BlockScale scale = block_scale(rule, format.dtype, *format.scale, low, high);
      store(q.scale.reshaped({q.scale.elements(), 1}), r0 / block_out * blocks + c0 / block_in, 0,
            scale.stored);
      for (int64_t r = r0; r < r1; ++r)
        for (int64_t c = c0; c < c1; ++c) {
          const float value = rows[static_cast<size_t>(r)][static_cast<size_t>(c)];
          store_code(q.weight.data, format.dtype, r * in + c,
                     code_of(rule, format.dtype, value / scale.divisor));
        }
    }
}

}  // namespace skiff::reference

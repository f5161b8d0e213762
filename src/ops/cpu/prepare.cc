#include <algorithm>
#include <cstring>

#include "base/huge_pages.h"
#include "base/round_up.h"
#include "ops/cpu/backend.h"
#include "ops/cpu/rows.h"

namespace skiff::cpu {
namespace {

// The parts of a prepared weight in its Buffer, each at a multiple of kTensorAlign, the weight at
// the end.
struct PreparedParts {
  int64_t bias = 0, scale = 0, zero = 0, input_scale = 0, order = 0, weight = 0, total = 0;

  PreparedParts(const WeightShape& shape, const WeightFormat& keep) {
    const int64_t experts = std::max<int64_t>(1, shape.experts);
    const auto part = [&](int64_t& at, int64_t size) {
      at = round_up(total, kTensorAlign);
      total = at + size;
    };
    part(bias, shape.bias ? shape.out * 4 : 0);
    if (!keep.quantized()) {
      part(weight, PanelShape{experts, shape.out, shape.in, keep.dtype}.total_bytes());
      return;
    }
    const CodeShape codes{experts, shape.out, shape.in, keep};
    const auto size = [&](DType dtype) {
      return codes.scales() * static_cast<int64_t>(bytes(dtype));
    };
    part(scale, size(*keep.scale));
    part(zero, keep.zero ? size(codes.zero_dtype()) : 0);
    const bool fixed = keep.input && keep.input->scales == InputFormat::kStatic;
    part(input_scale, fixed ? experts * 4 : 0);
    part(order, shape.order ? shape.in * 4 : 0);
    part(weight, codes.code_bytes());
  }
};

}  // namespace

bool CpuOps::multiplies(const WeightFormat& format) const {
  return has_meaning(format) && nests(format);
}

void CpuOps::check_prepared(const Linear& w) const {
  SKIFF_CHECK(w.packing == Packing::kPanels, "a weight that prepare() has not seen");
  SKIFF_CHECK(multiplies(w.format) && w.format.dtype == w.weight.dtype, "{} in a tensor of {}",
              describe(w.format), skiff::name(w.weight.dtype));
}

size_t CpuOps::prepared_bytes(const WeightShape& shape, const WeightFormat& keep) const {
  return static_cast<size_t>(PreparedParts(shape, keep).total);
}

Linear CpuOps::prepare(const Linear& plain, const WeightFormat& keep, Buffer* owner) {
  SKIFF_CHECK(plain.packing == Packing::kPlain);
  SKIFF_CHECK(
      multiplies(keep) && (plain.format.quantized() ? plain.format == keep : !keep.quantized()),
      "from {} to {}", describe(plain.format), describe(keep));
  SKIFF_CHECK(plain.weight.contiguous(), "rows {} apart", plain.weight.row_stride);
  const PanelShape shape = PanelShape::of(plain, keep.dtype);
  const PreparedParts parts({.experts = plain.experts,
                             .out = shape.out,
                             .in = shape.in,
                             .bias = bool{plain.bias},
                             .order = bool{plain.order}},
                            keep);
  *owner = Buffer(device(), static_cast<size_t>(parts.total));
  ask_for_huge_pages({static_cast<std::byte*>(owner->data()), owner->size()});
  Linear out = {.weight = plain.weight,
                .format = keep,
                .packing = Packing::kPanels,
                .experts = plain.experts};
  out.weight.data = owner->data() + parts.weight;
  out.weight.dtype = keep.dtype;
  if (plain.bias) {
    const int64_t n = plain.bias.elements();
    out.bias = owner->view(DType::kF32, {n}, static_cast<size_t>(parts.bias));
    copy_row(kernels_, out.bias.data, DType::kF32, plain.bias.data, plain.bias.dtype, n);
  }
  if (!keep.quantized()) {
    pack_panels(owner->data() + parts.weight, plain, shape, kernels_, pool_);
    return out;
  }
  const CodeShape codes = CodeShape::of(out);
  const auto view = [&](DType dtype, int64_t n, int64_t at) {
    return owner->view(dtype, {n}, static_cast<size_t>(at));
  };
  out.scale = view(*keep.scale, codes.scales(), parts.scale);
  if (keep.zero) out.zero = view(codes.zero_dtype(), codes.scales(), parts.zero);
  if (plain.input_scale) {
    out.input_scale = view(DType::kF32, codes.experts, parts.input_scale);
    copy(out.input_scale, plain.input_scale);
  }
  if (plain.order) {
    out.order = view(DType::kI32, codes.in, parts.order);
    std::memcpy(out.order.data, plain.order.data, static_cast<size_t>(codes.in) * 4);
  }
  pack_codes(out, plain, codes, pool_);
  return out;
}

}  // namespace skiff::cpu

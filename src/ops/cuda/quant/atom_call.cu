#include "ops/cuda/quant/atom_call.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/hopper/tensor_map.h"
#include "ops/cuda/linear/shape.h"

namespace skiff::cuda::atoms {

AtomFormat format_of(const Linear& w) {
  const std::optional<AtomFormat> format = atom_format(w.format);
  SKIFF_CHECK(format.has_value(), "{} has no packing", describe(w.format));
  return *format;
}

AtomArgs args_of(const Linear& w) {
  const AtomShape shape = atom_shape(format_of(w), features(w), inputs(w));
  const AtomFormat& f = shape.format;
  return {.atoms = static_cast<const std::byte*>(w.weight.data),
          .matrix_bytes = shape.matrix_bytes(),
          .chunk_bytes = shape.atoms * f.bytes(),
          .atom_bytes = f.bytes(),
          .scales_at = f.scales_at(),
          .zeros_at = f.zeros_at(),
          .scale = f.scale,
          .zeros = f.zeros,
          .signed_zeros = w.format.zero == DType::kI4 || w.format.zero == DType::kI8,
          .fixed_zero = fixed_zero(w.format),
          .up_atoms = static_cast<int>(features(w) / 2 / kAtomHeight),
          .row_scales = f.groups == 0 ? w.scale.as<float>() : nullptr,
          .padded_rows = shape.row_scales(),
          .one_row = false,
          .x_row_scales = nullptr,
          .x_scales = nullptr,
          .x_scale_stride = 0};
}

AtomArgs args_of(const Linear& w, const MetRows& rows, const JobList& jobs) {
  AtomArgs args = args_of(w);
  args.one_row = jobs.expert && rows.x.rows() == 1;
  args.x_row_scales = rows.row_scales;
  args.x_scales = rows.chunk_scales;
  args.x_scale_stride = rows.chunk_stride;
  return args;
}

CUtensorMap row_map(const Tensor& x, int box_rows) {
  const auto pitch = static_cast<uint64_t>(x.row_stride) * bytes(x.dtype);
  const uint64_t size[] = {static_cast<uint64_t>(x.cols()) * bytes(x.dtype) / 2,
                           static_cast<uint64_t>(x.rows())};
  const uint64_t stride[] = {pitch};
  const uint32_t box[] = {64, static_cast<uint32_t>(box_rows)};
  return tensor_map(x.data, size, stride, box);
}

}  // namespace skiff::cuda::atoms

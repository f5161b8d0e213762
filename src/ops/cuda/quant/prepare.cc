#include "ops/cuda/quant/prepare.h"

#include <algorithm>

#include "ops/cuda/check.h"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/quant/atoms.h"
#include "ops/cuda/quant/float8_channels.h"
#include "ops/cuda/quant/float8_rows.h"
#include "ops/cuda/quant/pack_atoms.h"

namespace skiff::cuda {
namespace {

size_t up(size_t bytes) { return (bytes + 255) / 256 * 256; }

// Where the parts of a prepared weight begin in its memory.
struct Places {
  size_t row_scales = 0, bias = 0, order = 0, input_scale = 0, end = 0;
};

struct Parts {
  int64_t matrices, out, in;
  int64_t bias, order, input_scales;  // elements
};

Places places_of(const Parts& parts, const AtomShape& shape) {
  const auto bytes = [](int64_t elements, size_t each) {
    return up(static_cast<size_t>(elements) * each);
  };
  Places p;
  p.row_scales = bytes(parts.matrices, static_cast<size_t>(shape.matrix_bytes()));
  p.bias = p.row_scales + bytes(parts.matrices * shape.row_scales(), sizeof(float));
  p.order = p.bias + bytes(parts.bias, sizeof(float));
  p.input_scale = p.order + bytes(parts.order, sizeof(int32_t));
  p.end = p.input_scale + bytes(parts.input_scales, sizeof(float));
  return p;
}

AtomFormat packing_of(const WeightFormat& keep) {
  const std::optional<AtomFormat> format = atom_format(keep);
  SKIFF_CHECK(format.has_value(), "{}", describe(keep));
  return *format;
}

bool is_static(const WeightFormat& format) {
  return format.input && format.input->scales == InputFormat::kStatic;
}

void bring(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "copying a weight");
}

// Bytes [begin, begin + bytes) of a tensor, in memory of the device. Elements of four bits may end
// in the middle of a byte.
Tensor on_device(Buffer& memory, const Tensor& t, size_t begin, size_t bytes, Device device,
                 cudaStream_t stream) {
  if (!t) return {};
  if (memory.size() == 0) memory = Buffer(device, std::max<size_t>(1, bytes));
  bring(memory.data(), static_cast<const std::byte*>(t.data) + begin, bytes, stream);
  Tensor one = t;
  one.data = memory.data();
  one.device = device;
  return one;
}
size_t bytes_of(const Tensor& t) {
  return static_cast<size_t>((t.elements() * bits(t.dtype) + 7) / 8);
}

// Packs matrix after matrix. Elements on the host go through a buffer for one matrix.
class Packer {
 public:
  Packer(const Linear& plain, const WeightFormat& keep, Device device, cudaStream_t stream)
      : plain_(plain), keep_(keep), device_(device), stream_(stream), here_(plain) {
    if (plain.weight.device == device) return;
    here_.scale = on_device(scales_, plain.scale, 0, bytes_of(plain.scale), device, stream);
    here_.zero =
        on_device(zeros_, plain.zero, 0, plain.zero ? bytes_of(plain.zero) : 0, device, stream);
  }

  void pack(std::byte* to, float* row_scales, int64_t matrix) {
    if (plain_.weight.device == device_)
      return pack_atoms(to, row_scales, plain_, keep_, {matrix, matrix}, stream_);
    const size_t bytes = byte_size(keep_.dtype, features(plain_) * inputs(plain_));
    here_.weight = on_device(codes_, plain_.weight, static_cast<size_t>(matrix) * bytes, bytes,
                             device_, stream_);
    pack_atoms(to, row_scales, here_, keep_, {0, matrix}, stream_);
    check(cudaStreamSynchronize(stream_), "packing a weight");
  }

 private:
  const Linear& plain_;
  const WeightFormat& keep_;
  Device device_;
  cudaStream_t stream_;
  Linear here_;  // on the device
  Buffer codes_, scales_, zeros_;
};

}  // namespace

size_t prepared_quantized_bytes(const WeightShape& shape, const WeightFormat& keep, bool streamed) {
  if (streamed && !shape.order && keeps_float8_rows(keep, shape.experts, shape.out, shape.in))
    return float8_rows_bytes({shape.experts, shape.out, shape.in}, shape.bias);
  if (streamed && !shape.order && keeps_float8_channels(keep, shape.experts, shape.out, shape.in))
    return float8_places(Float8Channels{shape.out, shape.in}, shape.bias).end;
  const int64_t matrices = std::max<int64_t>(1, shape.experts);
  const Parts parts = {.matrices = matrices,
                       .out = shape.out,
                       .in = shape.in,
                       .bias = shape.bias ? shape.out : 0,
                       .order = shape.order ? shape.in : 0,
                       .input_scales = is_static(keep) ? matrices : 0};
  return places_of(parts, atom_shape(packing_of(keep), shape.out, shape.in)).end;
}

Linear prepare_quantized(const Linear& plain, const WeightFormat& keep, Device device,
                         Buffer* owner, cudaStream_t stream, bool streamed) {
  SKIFF_CHECK(plain.packing == Packing::kPlain && plain.format == keep, "from {} to {}",
              describe(plain.format), describe(keep));
  SKIFF_CHECK(plain.scale && (!keep.zero || plain.zero), "{} without its scales", describe(keep));
  SKIFF_CHECK(plain.weight.contiguous() && plain.scale.contiguous());
  if (streamed && !plain.order &&
      keeps_float8_rows(keep, plain.experts, features(plain), inputs(plain)))
    return prepare_float8_rows(plain, device, owner, stream);
  if (streamed && !plain.order &&
      keeps_float8_channels(keep, plain.experts, features(plain), inputs(plain)))
    return prepare_float8_channels(plain, device, owner, stream);
  const int64_t matrices = std::max<int64_t>(1, plain.experts);
  const AtomShape shape = atom_shape(packing_of(keep), features(plain), inputs(plain));
  const Places places = places_of({.matrices = matrices,
                                   .out = features(plain),
                                   .in = inputs(plain),
                                   .bias = plain.bias ? plain.bias.elements() : 0,
                                   .order = plain.order ? plain.order.elements() : 0,
                                   .input_scales = is_static(keep) ? matrices : 0},
                                  shape);
  *owner = Buffer(device, places.end);
  Linear out = {
      .weight = plain.weight, .format = keep, .packing = Packing::kTiles, .experts = plain.experts};
  out.weight.data = owner->data();
  out.weight.dtype = keep.dtype;
  out.weight.device = device;
  if (shape.row_scales() > 0)
    out.scale = owner->view(DType::kF32, {matrices * shape.row_scales()}, places.row_scales);
  Packer packer(plain, keep, device, stream);
  for (int64_t m = 0; m < matrices; ++m)
    packer.pack(owner->data() + m * shape.matrix_bytes(),
                out.scale ? out.scale.as<float>() + m * shape.row_scales() : nullptr, m);
  const auto keep_part = [&](const Tensor& from, DType dtype, size_t at) {
    if (!from) return Tensor{};
    SKIFF_CHECK(from.dtype == dtype, "{}", name(from.dtype));
    SKIFF_CHECK(from.contiguous());
    bring(owner->data() + at, from.data, bytes_of(from), stream);
    return owner->view(dtype, {from.elements()}, at);
  };
  out.bias = keep_part(plain.bias, DType::kF32, places.bias);
  out.order = keep_part(plain.order, DType::kI32, places.order);
  if (is_static(keep))
    out.input_scale = keep_part(plain.input_scale, DType::kF32, places.input_scale);
  check(cudaStreamSynchronize(stream), "preparing a weight");
  return out;
}

}  // namespace skiff::cuda

// ops/cuda/backend_weights.cc -- CudaOps: weights as kernels take them, and conversions.
#include "ops/cuda/backend.h"

#include "ops/cuda/check.h"
#include "ops/cuda/linear/pack_tiles.h"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/linear/tiles.h"
#include "ops/cuda/moe/experts.h"
#include "ops/cuda/quant/atoms.h"
#include "ops/cuda/quant/prepare.h"
#include "ops/cuda/quant/quantize.h"
#include "ops/cuda/rows/rows.h"
#include "ops/cuda/tensor_copies.h"
#include "ops/layer_arena.h"

namespace skiff::cuda {

// Conversions run on the device, so host tensors go through a temporary; only start-up needs that.
void CudaOps::copy(Tensor out, Tensor x) {
  SKIFF_CHECK_EQ(out.rows(), x.rows());
  SKIFF_CHECK_EQ(out.cols(), x.cols());
  if (out.dtype == x.dtype) {
    copy_plain(out, x, stream());
    return done();
  }
  const auto on_device = [&](const Tensor& t, Buffer& memory) {
    if (t.device == device_) return t;
    memory = Buffer(device_, byte_size(t.dtype, t.elements()));
    return memory.view(t.dtype, {t.rows(), t.cols()});
  };
  Buffer x_memory, out_memory;
  const Tensor from = on_device(x, x_memory), to = on_device(out, out_memory);
  if (from.data != x.data) copy_plain(from, x, stream());
  copy_rows(to, from, {}, stream());
  if (to.data != out.data) copy_plain(out, to, stream());
  if (x_memory.size() + out_memory.size() > 0) wait(mark());
}

bool CudaOps::multiplies(const WeightFormat& format) const {
  return format == WeightFormat{DType::kF32} || format == WeightFormat{DType::kBF16} ||
         atom_format(format).has_value();
}

size_t CudaOps::arena_bytes(const FeedForward& ffn, int64_t hidden, int64_t rows, DType act) const {
  return layer_arena_bytes(ffn, rows, act, [&](const Moe& moe) {
    return experts_bytes(act, rows * moe.sharers, moe.router, hidden, moe.width);
  });
}

// The bias begins at a multiple of 256 bytes.
size_t CudaOps::prepared_bytes(const WeightShape& shape, const WeightFormat& keep) const {
  if (keep.quantized()) return prepared_quantized_bytes(shape, keep, products_.streamed().runs());
  const int64_t elements = std::max<int64_t>(1, shape.experts) * shape.out * shape.in;
  const size_t weight = (static_cast<size_t>(elements) * bytes(keep.dtype) + 255) / 256 * 256;
  return weight + (shape.bias ? static_cast<size_t>(shape.out) * sizeof(float) : 0);
}

// Experts are packed for the streamed GEMM. Dense weights stay plain: cuBLASLt reads them, too.
bool CudaOps::packs(const Linear& plain, const WeightFormat& keep) const {
  return options_.pack_experts && products_.streamed().runs() && plain.experts > 0 &&
         keep == WeightFormat{DType::kBF16} && plain.weight.contiguous() &&
         fits_tiles(features(plain), inputs(plain));
}

// Converts and packs one expert after the other, through a buffer for one of them.
void CudaOps::copy_packed(std::byte* to, const Linear& plain) {
  const int64_t rows = features(plain), in = inputs(plain);
  const Buffer memory(device_, static_cast<size_t>(rows * in) * 2);
  const Tensor one = memory.view(DType::kBF16, {rows, in});
  const Tensor all = plain.weight.reshaped({plain.experts * rows, in});
  for (int64_t e = 0; e < plain.experts; ++e) {
    copy(one, all.row_range(e * rows, rows));
    pack_tiles(to + e * rows * in * 2, one, stream());
  }
  wait(mark());
}

void CudaOps::quantize(const Linear& q, Tensor plain, QuantRule rule) {
  cuda::quantize(q, plain, rule, stream());
  done();
}

Linear CudaOps::prepare(const Linear& plain, const WeightFormat& keep, Buffer* owner) {
  SKIFF_CHECK(plain.packing == Packing::kPlain);
  if (keep.quantized()) {
    Linear w =
        prepare_quantized(plain, keep, device_, owner, stream(), products_.streamed().runs());
    has_channels_ |= is_float8_channels(w);
    return w;
  }
  SKIFF_CHECK(!plain.format.quantized() && multiplies(keep), "from {} to {}",
              describe(plain.format), describe(keep));
  const size_t weight = (byte_size(keep.dtype, plain.weight.elements()) + 255) / 256 * 256;
  const size_t bias = plain.bias ? static_cast<size_t>(plain.bias.elements()) * 4 : 0;
  *owner = Buffer(device_, weight + bias);
  Linear out{.weight = plain.weight, .format = keep, .experts = plain.experts};
  out.weight.data = owner->data();
  out.weight.dtype = keep.dtype;
  out.weight.device = device_;
  out.weight.row_stride = plain.weight.cols();
  if (packs(plain, keep)) {
    out.packing = Packing::kTiles;
    copy_packed(owner->data(), plain);
  } else {
    copy(out.weight, plain.weight);
  }
  if (plain.bias) {
    out.bias = owner->view(DType::kF32, {plain.bias.elements()}, weight);
    copy(out.bias, plain.bias.reshaped({plain.bias.elements()}));
  }
  wait(mark());
  return out;
}

}  // namespace skiff::cuda

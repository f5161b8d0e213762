#include <algorithm>

#include "ops/reference/math.h"
#include "ops/reference/reference_ops.h"
#include "ops/reference/rows.h"
#include "ops/reference/weights.h"

namespace skiff::reference {

bool ReferenceOps::multiplies(const WeightFormat& format) const {
  return format == WeightFormat{DType::kF32} || format == WeightFormat{DType::kBF16};
}

size_t ReferenceOps::prepared_bytes(const WeightShape& shape, const WeightFormat& keep) const {
  const int64_t elements = std::max<int64_t>(1, shape.experts) * shape.out * shape.in;
  return Arena::size_of(DType::kF32, shape.bias ? shape.out : 0) +
         static_cast<size_t>(elements) * bytes(keep.dtype);
}

Linear ReferenceOps::prepare(const Linear& plain, const WeightFormat& keep, Buffer* owner) {
  SKIFF_CHECK(plain.packing == Packing::kPlain);
  SKIFF_CHECK(!plain.format.quantized() && multiplies(keep), "from {} to {}",
              describe(plain.format), describe(keep));
  const Tensor& w = plain.weight;
  const size_t bias_bytes = plain.bias ? static_cast<size_t>(plain.bias.elements()) * 4 : 0;
  const size_t weight_at = (bias_bytes + kTensorAlign - 1) / kTensorAlign * kTensorAlign;
  *owner = Buffer(device(), weight_at + byte_size(keep.dtype, w.elements()));
  Linear out{.format = keep, .experts = plain.experts};
  out.weight = owner->view(keep.dtype, {w.dim[0], w.dim[1], w.dim[2], w.dim[3]}, weight_at);
  convert(out.weight, w);
  if (plain.bias) {
    out.bias = owner->view(DType::kF32, {plain.bias.elements()});
    convert(out.bias, plain.bias);
  }
  return out;
}

void ReferenceOps::linear(Tensor out, Tensor x, const Linear& w) {
  SKIFF_CHECK(multiplies(w.format), "{}", describe(w.format));
  SKIFF_CHECK_EQ(out.rows(), x.rows());
  SKIFF_CHECK_EQ(out.cols(), w.weight.rows());
  std::vector<std::vector<float>> inputs;
  for (int64_t r = 0; r < x.rows(); ++r) inputs.push_back(load_row(x, r));
  for (int64_t o = 0; o < out.cols(); ++o) {
    const std::vector<float> weight = weight_row(w, o);
    const double bias = w.bias ? w.bias.as<float>()[o] : 0;
    for (int64_t r = 0; r < out.rows(); ++r) {
      store(out, r, o, dot(inputs[static_cast<size_t>(r)], weight) + bias);
    }
  }
}

}  // namespace skiff::reference

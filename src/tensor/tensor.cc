#include "tensor/tensor.h"

namespace skiff {

int bits(DType dtype) {
  switch (dtype) {
    case DType::kI64:
      return 64;
    case DType::kF32:
    case DType::kI32:
      return 32;
    case DType::kF16:
    case DType::kBF16:
      return 16;
    case DType::kF8E4M3:
    case DType::kI8:
    case DType::kU8:
      return 8;
    case DType::kF4E2M1:
    case DType::kI4:
    case DType::kU4:
      return 4;
  }
  SKIFF_CHECK(false, "dtype {}", static_cast<int>(dtype));
}

size_t bytes(DType dtype) { return byte_size(dtype, 1); }

size_t byte_size(DType dtype, int64_t elements) {
  const int64_t size = elements * bits(dtype);
  SKIFF_CHECK(size % 8 == 0, "{} elements of {} are not a whole number of bytes", elements,
              name(dtype));
  return static_cast<size_t>(size / 8);
}

std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF8E4M3:
      return "float8_e4m3";
    case DType::kF4E2M1:
      return "float4_e2m1";
    case DType::kI64:
      return "int64";
    case DType::kI32:
      return "int32";
    case DType::kI8:
      return "int8";
    case DType::kI4:
      return "int4";
    case DType::kU8:
      return "uint8";
    case DType::kU4:
      return "uint4";
  }
  SKIFF_CHECK(false, "dtype {}", static_cast<int>(dtype));
}

namespace {

std::byte* at(const Tensor& t, int64_t element) {
  return static_cast<std::byte*>(t.data) + byte_size(t.dtype, element);
}

}  // namespace

Tensor Tensor::row_range(int64_t begin, int64_t count) const {
  SKIFF_CHECK(begin >= 0 && count >= 0 && begin + count <= rows(), "rows [{}, {}) of {}", begin,
              begin + count, rows());
  Tensor out = *this;
  out.data = at(*this, begin * row_stride);
  out.dim[0] = count;
  return out;
}

Tensor Tensor::col_range(int64_t begin, int64_t count) const {
  SKIFF_CHECK(begin >= 0 && count >= 0 && begin + count <= cols(), "columns [{}, {}) of {}", begin,
              begin + count, cols());
  SKIFF_CHECK(rows() <= 1 || row_stride * bits(dtype) % 8 == 0, "rows {} elements of {} apart",
              row_stride, name(dtype));
  Tensor out = *this;
  out.data = at(*this, begin);
  out.dim = {rows(), count, 1, 1};
  return out;
}

Tensor Tensor::reshaped(std::initializer_list<int64_t> shape) const {
  SKIFF_CHECK(contiguous() || rows() <= 1);
  Tensor out = host_tensor(data, dtype, shape);
  out.device = device;
  SKIFF_CHECK_EQ(out.elements(), elements());
  return out;
}

Tensor host_tensor(void* data, DType dtype, std::initializer_list<int64_t> shape) {
  SKIFF_CHECK(shape.size() >= 1 && shape.size() <= 4);
  Tensor t;
  t.data = data;
  t.dtype = dtype;
  size_t i = 0;
  for (int64_t n : shape) t.dim[i++] = n;
  t.row_stride = t.cols();
  return t;
}

}  // namespace skiff

#include "quantize/layout.h"

#include <algorithm>
#include <cstring>

#include "tensor/convert.h"

namespace skiff::quantize {
namespace {

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> out(values.size() * sizeof(T));
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

template <class T>
std::vector<std::byte> converted(const std::vector<float>& values) {
  std::vector<T> out;
  out.reserve(values.size());
  for (const float x : values) out.push_back(from_float<T>(x));
  return bytes_of(out);
}

}  // namespace

std::span<const Layout> layouts() {
  static constexpr size_t kCount = 4;
  static const std::array<Layout, kCount> all = {kCompressedTensorsLayout, kGptqLayout, kAwqLayout,
                                                 kPaddleNlpLayout};
  return all;
}

const Layout* find_layout(std::string_view name) {
  for (const Layout& layout : layouts())
    if (layout.name == name) return &layout;
  return nullptr;
}

std::vector<std::byte> float_bytes(const std::vector<float>& values, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return bytes_of(values);
    case DType::kF16:
      return converted<F16>(values);
    case DType::kBF16:
      return converted<BF16>(values);
    default:
      SKIFF_CHECK(false, "floats as {}", name(dtype));
  }
}

std::string_view safetensors_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    default:
      SKIFF_CHECK(false, "no floats: {}", name(dtype));
  }
}

std::vector<std::byte> word_bytes(const std::vector<uint32_t>& words) { return bytes_of(words); }

NewTensor transposed(NewTensor tensor) {
  SKIFF_CHECK_EQ(tensor.shape.size(), size_t{2});
  const auto rows = static_cast<size_t>(tensor.shape[0]);
  const auto cols = static_cast<size_t>(tensor.shape[1]);
  if (rows * cols == 0) return tensor;
  const size_t size = tensor.data.size() / (rows * cols);
  std::vector<std::byte> turned(tensor.data.size());
  for (size_t c = 0; c < cols; ++c)
    for (size_t r = 0; r < rows; ++r)
      std::memcpy(turned.data() + (c * rows + r) * size, tensor.data.data() + (r * cols + c) * size,
                  size);
  tensor.data = std::move(turned);
  std::swap(tensor.shape[0], tensor.shape[1]);
  return tensor;
}

std::string exact_pattern(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (c == '.') pattern += '\\';
    pattern += c;
  }
  return pattern + "$";
}

}  // namespace skiff::quantize

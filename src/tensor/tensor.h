// tensor/tensor.h -- a typed, shaped view of memory that something else owns.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/check.h"

namespace skiff {

// kI4, kU4 and kF4E2M1 lie two to a byte, the first in the low half.
enum class DType : uint8_t { kF32, kF16, kBF16, kF8E4M3, kF4E2M1, kI64, kI32, kI8, kI4, kU8, kU4 };
int bits(DType dtype);
// Bytes of one element. CHECKs that they are a whole number: see byte_size() for other dtypes.
size_t bytes(DType dtype);
// Bytes of `elements` elements side by side. CHECKs that they end at the end of a byte.
size_t byte_size(DType dtype, int64_t elements);
std::string_view name(DType dtype);

struct Device {
  enum Kind : uint8_t { kCpu, kCuda } kind = kCpu;
  int8_t index = 0;
  bool operator==(const Device&) const = default;
};

// Storage forms of the two 16-bit floats; conversions are in tensor/convert.h.
struct BF16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

// The C++ type of each DType. A dtype that is not listed has no plain host form.
template <class T>
inline constexpr bool is_element = false;
template <class T>
inline constexpr DType dtype_of = DType::kU8;
#define SKIFF_ELEMENT(T, D)                   \
  template <>                                 \
  inline constexpr bool is_element<T> = true; \
  template <>                                 \
  inline constexpr DType dtype_of<T> = DType::D;
SKIFF_ELEMENT(float, kF32)
SKIFF_ELEMENT(F16, kF16)
SKIFF_ELEMENT(BF16, kBF16)
SKIFF_ELEMENT(int32_t, kI32)
SKIFF_ELEMENT(int64_t, kI64)
SKIFF_ELEMENT(int8_t, kI8)
SKIFF_ELEMENT(uint8_t, kU8)
#undef SKIFF_ELEMENT

// dim[0] is rows: the ragged token axis wherever there is one. Every row is contiguous. Where
// elements are smaller than a byte, a view must begin at the beginning of a byte: row_range()
// and col_range() CHECK that.
struct Tensor {
  void* data = nullptr;
  std::array<int64_t, 4> dim{0, 1, 1, 1};
  int64_t row_stride = 0;  // elements from one row to the next
  DType dtype = DType::kF32;
  Device device;

  explicit operator bool() const { return data != nullptr; }
  int64_t rows() const { return dim[0]; }
  int64_t cols() const { return dim[1] * dim[2] * dim[3]; }
  int64_t elements() const { return rows() * cols(); }
  bool contiguous() const { return row_stride == cols(); }
  Tensor row_range(int64_t begin, int64_t count) const;
  Tensor col_range(int64_t begin, int64_t count) const;  // result is [rows, count]
  // Needs contiguous(); up to four dimensions with the same number of elements.
  Tensor reshaped(std::initializer_list<int64_t> shape) const;

  template <class T>
  T* as() const {
    static_assert(is_element<T>);
    SKIFF_CHECK(dtype == dtype_of<T>, "tensor is {}, not {}", name(dtype), name(dtype_of<T>));
    return static_cast<T*>(data);
  }
  template <class T>
  T* row(int64_t r) const {
    return as<T>() + r * row_stride;
  }
};
static_assert(std::is_trivially_copyable_v<Tensor>);

// A contiguous view over host memory that the caller keeps alive.
Tensor host_tensor(void* data, DType dtype, std::initializer_list<int64_t> shape);

}  // namespace skiff

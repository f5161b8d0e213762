#include "ops/reference/rows.h"

namespace skiff::reference {
namespace {

// Calls f with a pointer to the first element of the row.
template <class F>
void with_row(Tensor t, int64_t row, F f) {
  SKIFF_CHECK(row >= 0 && row < t.rows(), "row {} of {}", row, t.rows());
  switch (t.dtype) {
    case DType::kF32:
      return f(t.row<float>(row));
    case DType::kF16:
      return f(t.row<F16>(row));
    case DType::kBF16:
      return f(t.row<BF16>(row));
    default:
      SKIFF_CHECK(false, "no floats in {}", name(t.dtype));
  }
}

}  // namespace

std::vector<float> load_row(Tensor t, int64_t row) {
  std::vector<float> out(static_cast<size_t>(t.cols()));
  with_row(t, row, [&](const auto* from) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = to_float(from[i]);
  });
  return out;
}

void store_row(Tensor t, int64_t row, std::span<const float> values) {
  SKIFF_CHECK_EQ(static_cast<int64_t>(values.size()), t.cols());
  with_row(t, row, [&]<class T>(T* to) {
    for (size_t i = 0; i < values.size(); ++i) to[i] = from_float<T>(values[i]);
  });
}

void store(Tensor t, int64_t row, int64_t col, double value) {
  with_row(t, row, [&]<class T>(T* to) { to[col] = from_float<T>(static_cast<float>(value)); });
}

Tensor stack_entry(Tensor stack, int64_t index) {
  return stack.row_range(index, 1).reshaped({stack.dim[1], stack.dim[2]});
}

}  // namespace skiff::reference

#include "comm/sums.h"

#include <algorithm>

#include "tensor/convert.h"

namespace skiff::comm {
namespace {

template <class T>
void sum_row_of(std::span<const Tensor> by_rank, int64_t r, std::span<float> sum) {
  const T* first = by_rank[0].row<T>(r);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = to_float(first[i]);
  for (const Tensor& next : by_rank.subspan(1)) {
    const T* row = next.row<T>(r);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += to_float(row[i]);
  }
}

}  // namespace

void sum_row(std::span<const Tensor> by_rank, int64_t r, std::span<float> sum) {
  if (by_rank[0].dtype == DType::kBF16) return sum_row_of<BF16>(by_rank, r, sum);
  sum_row_of<float>(by_rank, r, sum);
}

void sum_rows(std::span<const Tensor> by_rank, int64_t first, Tensor out,
              std::span<float> scratch) {
  for (int64_t r = 0; r < out.rows(); ++r) {
    sum_row(by_rank, first + r, scratch);
    if (out.dtype == DType::kBF16)
      std::ranges::transform(scratch, out.row<BF16>(r), to_bf16);
    else
      std::ranges::copy(scratch, out.row<float>(r));
  }
}

}  // namespace skiff::comm

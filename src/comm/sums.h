// comm/sums.h -- the one order in which ranks are added up, whatever carries their numbers.
#pragma once
#include <span>

#include "tensor/tensor.h"

namespace skiff::comm {

// Writes to `sum`, [cols], the sum of row r over the tensors of all ranks, in the order of ranks,
// each addition in float32. The tensors, all f32 or all bf16, lie on the host.
void sum_row(std::span<const Tensor> by_rank, int64_t r, std::span<float> sum);
// Writes to `out` the sums of as many rows from `first` on, rounded to its dtype, that of the
// tensors. `scratch` has a number for each column.
void sum_rows(std::span<const Tensor> by_rank, int64_t first, Tensor out, std::span<float> scratch);

}  // namespace skiff::comm

// model/finite.h -- a search for numbers that are not finite.
#pragma once
#include <cstdint>
#include <optional>

#include "tensor/tensor.h"

namespace skiff::model {

// Returns the index of the first of `n` values, f32, f16 or bf16, that is infinite or no number.
std::optional<int64_t> find_not_finite(const void* values, DType dtype, int64_t n);

}  // namespace skiff::model

// model/kv_cache_dtype.h -- the names that users and checkpoints have for the dtypes of a KV cache.
#pragma once
#include <optional>
#include <string_view>

#include "arch/spec.h"
#include "base/result.h"
#include "tensor/tensor.h"

namespace skiff::model {

// Returns the dtype of the elements, or none for "auto": float32, bfloat16, int8, fp8, int4, and
// the names of FastDeploy's kv_cache_quant_type and of vLLM for the same. The error lacks the flag
// or key that the word is of.
Result<std::optional<DType>> kv_cache_dtype_named(std::string_view word);

// Returns why a model of that spec cannot have such a cache, or none.
std::optional<Error> refuse_kv_cache(const ModelSpec& spec, DType dtype);

}  // namespace skiff::model

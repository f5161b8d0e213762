// ops/cuda/attention/widened_prefill.h -- attention of many rows over a quantized cache, by the
// kernel for bf16: pages that the rows see are copied as bf16 values first. A copy reads each
// element once for all rows of the step, where a kernel that converts tiles does so once for every
// 128 of them.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <vector>

#include "ops/batch.h"
#include "ops/cuda/attention/attend_kernels.h"

namespace skiff::cuda {

// On the device, 256-byte aligned, and written by nobody else while attention runs.
struct WidenScratch {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

// The pages that the prefill kernel's rows of a step see, in the order of sequences; at most
// kMaxWidenSpans, else none.
std::vector<WidenSpan> widen_spans(const PlanShape& shape, int page_size,
                                   std::span<const int32_t> row_start,
                                   std::span<const int32_t> kv_len);

// Does what start_quantized_prefill() does, as many heads at a time as the scratch holds. Returns
// false, and starts nothing, where it does not hold one.
bool start_widened_prefill(const PrefillArgs& args, const std::vector<WidenSpan>& spans,
                           const WidenScratch& scratch, cudaStream_t stream);

}  // namespace skiff::cuda

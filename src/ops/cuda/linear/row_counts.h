// ops/cuda/linear/row_counts.h -- the row counts for which GEMM algorithms are chosen. Pure
// functions without CUDA.
//
// cuBLASLt's tiles fit some row counts and not others: with one row too many the last wave of tiles
// is nearly empty, and the GEMM may take twice as long. So algorithms are chosen for many row
// counts, close together where waves are few; a GEMM of any other count uses the next one's.
#pragma once
#include <cstdint>
#include <vector>

namespace skiff::cuda {

// Only GEMMs of up to this many rows use split-K: there it is worth 15 % (Qwen2.5-7B, 128 rows).
constexpr int64_t kSplitRows = 256;

// The row counts above `from` and up to `to` for which algorithms are chosen, in rising order.
std::vector<int64_t> tuned_counts(int64_t from, int64_t to);

}  // namespace skiff::cuda

// ops/cuda/linear/tuned.h -- the cuBLASLt algorithms that a process measured to be fastest, as a
// value that another process can adopt. Pure functions without CUDA.
#pragma once
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace skiff::cuda {

// The shape of a GEMM out[rows, features] = x[rows, in] * w^T. `rows` is exact, or the upper end of
// a bucket of row counts that share an algorithm.
struct ProductKey {
  int64_t rows = 0, in = 0, features = 0;
  int64_t x_stride = 0, out_stride = 0;  // elements from one row to the next
  int32_t out_type = 0;                  // a DType
  auto operator<=>(const ProductKey&) const = default;
};

// cublasLtMatmulAlgo_t, which NVIDIA documents as plain data for one version of cuBLASLt.
using ProductAlgorithm = std::array<uint64_t, 8>;

struct TunedProduct {
  ProductKey key;
  ProductAlgorithm algorithm{};
  bool operator==(const TunedProduct&) const = default;
};

struct TunedProducts {
  uint64_t library = 0;     // cuBLASLt's version
  uint64_t capability = 0;  // the device's compute capability
  std::vector<TunedProduct> products;
  bool operator==(const TunedProducts&) const = default;
};

std::vector<std::byte> to_bytes(const TunedProducts& tuned);
// Empty where the bytes are not the result of to_bytes().
std::optional<TunedProducts> tuned_of(std::span<const std::byte> bytes);

}  // namespace skiff::cuda

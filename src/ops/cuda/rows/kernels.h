// ops/cuda/rows/kernels.h -- the launches behind rows.h, on plain pointers.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace skiff::cuda {

// Returns whether the kernels, all compiled for the same architectures, run on the current device.
bool has_kernels();

enum class Float : uint8_t { kF32, kF16, kBF16 };

// Rows of floats; `stride` elements apart.
struct Matrix {
  void* data = nullptr;
  int64_t stride = 0;
  Float type = Float::kF32;
};

void start_copy_rows(Matrix out, Matrix x, const int32_t* from, int rows, int cols,
                     cudaStream_t stream);  // from: null for row r of x; else x's row from[r]
void start_add_norm(Matrix out, Matrix residual, Matrix delta, const float* weight, float eps,
                    int rows, int cols, cudaStream_t stream);
void start_add(Matrix out, Matrix x, int rows, int cols, cudaStream_t stream);
void start_relu(Matrix x, int rows, int cols, cudaStream_t stream);
void start_gated_act(Matrix out, Matrix gate_up, bool gelu, int rows, int width,
                     cudaStream_t stream);
void start_load_tokens(int32_t* tokens, const int32_t* last, int n, cudaStream_t stream);
void start_store_tokens(int32_t* last, const int32_t* slots, const int32_t* tokens, int n,
                        cudaStream_t stream);

}  // namespace skiff::cuda

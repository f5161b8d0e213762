// ops/cpu/rows.h -- moving rows of floats from one dtype to another.
#pragma once
#include "ops/cpu/isa/kernels.h"
#include "tensor/tensor.h"

namespace skiff::cpu {

// Copies n values from src (f32, f16 or bf16) to dst (f32 or bf16), each rounded once at most.
void copy_row(const Kernels& k, void* dst, DType to, const void* src, DType from, int64_t n);

// The first byte of row r.
std::byte* row_data(const Tensor& t, int64_t r);

}  // namespace skiff::cpu

// ops/cuda/mla/head_inputs.h -- the numbers of inputs of a head for which kernels of few rows are
// compiled: those of DeepSeek's products before and behind latent attention.
#pragma once
#include <cstdint>
#include <type_traits>

namespace skiff::cuda {

// Calls f with `in` as a constant. Returns false where there are no kernels for it.
template <class F>
bool for_head_inputs(int64_t in, F f) {
  if (in == 128) return f(std::integral_constant<int, 128>()), true;
  if (in == 512) return f(std::integral_constant<int, 512>()), true;
  return false;
}

}  // namespace skiff::cuda

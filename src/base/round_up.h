// base/round_up.h -- sizes rounded up to a multiple.
#pragma once
#include <concepts>
#include <type_traits>

namespace skiff {

// The smallest multiple of `step` (> 0) that is not below `n` (>= 0).
template <std::integral T>
constexpr T round_up(T n, std::type_identity_t<T> step) {
  return (n + step - 1) / step * step;
}

}  // namespace skiff

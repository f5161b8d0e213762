#include "model/finite.h"

#include <algorithm>

namespace skiff::model {
namespace {

// A float is not finite where all bits of its exponent are set. Pieces are searched without
// branches, so that vectors do it.
template <class Bits>
std::optional<int64_t> find(const Bits* values, Bits exponent, int64_t n) {
  constexpr int64_t kPiece = 1024;
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t end = std::min(n, begin + kPiece);
    Bits found = 0;
    for (int64_t i = begin; i < end; ++i)
      found = static_cast<Bits>(found | ((values[i] & exponent) == exponent ? 1 : 0));
    if (!found) continue;
    for (int64_t i = begin;; ++i)
      if ((values[i] & exponent) == exponent) return i;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> find_not_finite(const void* values, DType dtype, int64_t n) {
  switch (dtype) {
    case DType::kF32:
      return find<uint32_t>(static_cast<const uint32_t*>(values), 0x7f800000u, n);
    case DType::kF16:
      return find<uint16_t>(static_cast<const uint16_t*>(values), 0x7c00, n);
    case DType::kBF16:
      return find<uint16_t>(static_cast<const uint16_t*>(values), 0x7f80, n);
    default:
      SKIFF_CHECK(false, "no floats in {}", name(dtype));
  }
}

}  // namespace skiff::model

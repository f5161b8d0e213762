// ops/cpu/isa/flush_subnormals.h -- the arithmetic of tiles, in vectors.
#pragma once
#include "ops/cpu/isa/intrinsics.h"

namespace skiff::cpu {
namespace {

// Subnormals are zero as long as this exists. Arithmetic that depends on it stands in a function of
// its own, so that the compiler moves none out of that time.
class FlushSubnormals {
 public:
  FlushSubnormals() { _mm_setcsr(before_ | kFlushToZero | kSubnormalsAreZero); }
  ~FlushSubnormals() { _mm_setcsr(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  static constexpr unsigned kFlushToZero = 0x8000, kSubnormalsAreZero = 0x40;
  unsigned before_ = _mm_getcsr();
};

}  // namespace
}  // namespace skiff::cpu

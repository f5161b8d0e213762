// weights/codes.h -- the bit patterns of elements smaller than 16 bits, one at a time. For readers
// of formats, for what quantizes and for tests; kernels have their own, faster ways.
#pragma once
#include "tensor/tensor.h"

namespace skiff {

// Eight-bit floats of 4 bits of exponent and 3 of mantissa, without infinities (Micikevicius et al.
// 2022, table 1, E4M3): the largest is 448, and 0x7f and 0xff are NaN.
float from_e4m3(uint8_t code);
// Rounds to nearest even; what lies beyond 448 becomes 448 with its sign, and NaN 0x7f.
uint8_t to_e4m3(float x);

// The value of element `index` behind `data`: an integer or a float of any dtype but the 32 and 64
// bits wide integers. Elements of four bits lie two to a byte, the first in the low half.
float code_value(const void* data, DType dtype, int64_t index);
// Stores the low bits of `bits` as element `index`, of four or eight bits.
void store_code(void* data, DType dtype, int64_t index, unsigned bits);

// Returns whether elements are integers of at most eight bits.
bool is_small_integer(DType dtype);
// Returns whether elements are floats of 16 or 32 bits.
bool is_wide_float(DType dtype);

}  // namespace skiff

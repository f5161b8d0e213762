// ops/cpu/isa/intrinsics.h -- the compiler's intrinsics, without its mistaken warnings about them.
#pragma once
// GCC 12 takes the deliberately undefined sources of its own intrinsics for mistakes.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

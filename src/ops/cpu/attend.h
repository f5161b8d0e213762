// ops/cpu/attend.h -- the memory that attention allocates, for the memory plan.
#pragma once
#include <cstdint>

#include "arch/spec.h"

namespace skiff::cpu {

struct AttendScratch {
  int64_t workspace = 0;  // floats per thread
  int64_t states = 0;     // floats that the threads share
};

// Returns the memory for every step whose sequences have at most `max_context` positions.
AttendScratch attend_scratch(const Gqa& spec, int threads, int max_context);

}  // namespace skiff::cpu

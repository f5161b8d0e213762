// base/few_allocations_testing.h -- lets a test run out of memory.
#pragma once

namespace skiff::testing {

// Allocations that this thread may still make before `new` throws; negative: all. Only in programs
// with few_allocations_test.cc, which replaces `new` and `delete`.
extern thread_local long allowed_allocations;

}  // namespace skiff::testing

// quantize/parallel.h -- independent pieces of work on several threads. Which thread does a piece
// has no effect on its result, so results do not depend on the number of threads.
#pragma once
#include <cstdint>
#include <functional>

namespace skiff::quantize {

// Calls work(i) once for each i in [0, count), at most `threads` (at least 1) at a time. The first
// exception that a call throws is thrown again once all threads have ended.
void parallel_for(int threads, int64_t count, const std::function<void(int64_t)>& work);

}  // namespace skiff::quantize

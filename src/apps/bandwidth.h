// apps/bandwidth.h -- measures how fast the host reads memory, which bounds a decode step on it.
#pragma once

namespace skiff::apps {

// Returns the bytes per second that `threads` (0: one per core) read together from a buffer far
// larger than the caches, as the best of several passes. Takes about a second.
double measured_read_bandwidth(int threads);

}  // namespace skiff::apps

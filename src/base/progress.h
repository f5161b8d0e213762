// base/progress.h -- a progress bar on a terminal, a line each ten percent elsewhere.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace skiff {

// Called with work done and work in all, in the same unit (bytes, tokens). From one thread.
using Progress = std::function<void(uint64_t done, uint64_t total)>;

// Draws on stderr; quiet when `label` is empty.
Progress make_progress_bar(std::string label);

}  // namespace skiff

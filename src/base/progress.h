// base/progress.h -- draws a progress bar on a terminal and prints a line for each ten percent
// elsewhere.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace skiff {

// One thread calls it with the work done so far and the total work, in the same unit (bytes,
// tokens).
using Progress = std::function<void(uint64_t done, uint64_t total)>;

// Draws on stderr. An empty `label` means that nothing is drawn.
Progress make_progress_bar(std::string label);

}  // namespace skiff

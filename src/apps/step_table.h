// apps/step_table.h -- the rows of the table of `skiff bench steps`.
#pragma once
#include <string_view>
#include <vector>

namespace skiff::apps {

// Returns the numbers that a list names, rising and each once: "8", "1..4" for 1, 2, 3, 4, and
// "64..256:64" for 64, 128, 192, 256, separated by commas. Throws UsageError that names `flag` if
// the list is malformed or names no number, or one outside [1, `most`].
std::vector<int> numbers_in(std::string_view flag, std::string_view list, int most);

struct TimedRows {
  int rows = 0;
  double seconds = 0;
};

// Returns, for each of `steps` in rising order of rows, how far its time lies above the line
// between the best steps below and above it, as a fraction: of all pairs of steps, one with fewer
// rows but at least half as many, the other with more but at most twice as many, the pair whose
// line is lowest there counts. 0 for a step below every line, or without two neighbours.
std::vector<double> above_line(const std::vector<TimedRows>& steps);

}  // namespace skiff::apps

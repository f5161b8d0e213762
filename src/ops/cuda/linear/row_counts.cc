#include "ops/cuda/linear/row_counts.h"

namespace skiff::cuda {
namespace {

struct Ladder {
  int64_t last, step;
};
constexpr Ladder kLadder[] = {{64, 8},     {128, 16},   {1152, 32},   {2304, 64},
                              {2560, 256}, {4096, 512}, {8192, 1024}, {65536, 8192}};

}  // namespace

std::vector<int64_t> tuned_counts(int64_t from, int64_t to) {
  std::vector<int64_t> counts;
  int64_t rows = 0;
  for (const auto& [last, step] : kLadder) {
    for (; rows < last && rows <= to; rows += step)
      if (rows > from) counts.push_back(rows);
  }
  if (rows > from && rows <= to) counts.push_back(rows);
  return counts;
}

}  // namespace skiff::cuda

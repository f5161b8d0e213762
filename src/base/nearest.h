// base/nearest.h -- "did you mean": the word closest to another one by edit distance.
#pragma once
#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

namespace skiff {

// The Levenshtein distance: insertions, deletions and substitutions, each of cost 1.
inline size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substitute = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substitute, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// The word closest to `word`, or an empty one where none is close enough to be a typing error.
inline std::string_view nearest(std::string_view word, const std::vector<std::string_view>& words) {
  std::string_view best;
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  for (std::string_view candidate : words) {
    const size_t distance = edit_distance(word, candidate);
    if (distance >= least) continue;
    least = distance;
    best = candidate;
  }
  return best;
}

}  // namespace skiff

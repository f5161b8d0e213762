// text/merge_tokens.h -- applies the merges to a word: the neighbouring pair of the lowest rank
// becomes one token, the leftmost first, until no two neighbours merge.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/merge_table.h"

namespace skiff::text {

constexpr size_t kShortWord = 48;  // tokens

// Merges few tokens in O(n^2), because a scan over a small array is fastest. `ranks` holds the rank
// of each token with the next and is overwritten. Returns how many tokens are left; count is in [1,
// kShortWord].
size_t merge_few(const MergeTable& merges, int32_t* tokens, uint32_t* ranks, size_t count);

// Merges any number of tokens in place, in O(n log n).
void merge_many(const MergeTable& merges, std::vector<int32_t>& tokens);

}  // namespace skiff::text

// text/merge_tokens.h -- the merging itself: of all neighbours the pair of the lowest rank becomes
// one token, the leftmost first, until no two neighbours merge.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/merge_table.h"

namespace skiff {

constexpr size_t kShortWord = 48;  // tokens

// Few tokens, in O(n^2): a scan over a small array beats every other structure. `ranks` are those
// of each token with the next and are used up. Returns how many tokens are left; count is in
// [1, kShortWord].
size_t merge_few(const MergeTable& merges, int32_t* tokens, uint32_t* ranks, size_t count);

// Any number, in O(n log n), in place.
void merge_many(const MergeTable& merges, std::vector<int32_t>& tokens);

}  // namespace skiff

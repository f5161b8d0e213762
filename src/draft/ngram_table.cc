#include "draft/ngram_table.h"

#include <algorithm>

#include "base/check.h"

namespace skiff::draft {
namespace {

constexpr size_t kFirstLevel = 512;  // entries of a table's first level

}  // namespace

uint64_t NgramTable::hash(std::span<const Token> text, int end) const {
  uint64_t h = 0x9e3779b97f4a7c15ull;
  for (const Token t : text.subspan(static_cast<size_t>(end - n_), static_cast<size_t>(n_))) {
    h = (h ^ static_cast<uint32_t>(t)) * 0xd6e8feb86659fd93ull;
    h ^= h >> 32;
  }
  return h;
}

bool NgramTable::same(std::span<const Token> text, int end, int other) const {
  const auto n = static_cast<size_t>(n_);
  return std::ranges::equal(text.subspan(static_cast<size_t>(end) - n, n),
                            text.subspan(static_cast<size_t>(other) - n, n));
}

std::span<const int32_t> NgramTable::bucket(const Level& level, uint64_t hash) {
  const size_t buckets = level.ends.size() / kBucket;
  return std::span(level.ends).subspan(hash % buckets * kBucket, kBucket);
}

void NgramTable::add(std::span<const Token> text, int end) {
  SKIFF_CHECK(end >= n_ && static_cast<size_t>(end) <= text.size());
  if (levels_.empty() || levels_.back().room == 0) {
    const size_t size = levels_.empty() ? kFirstLevel : 2 * levels_.back().ends.size();
    levels_.push_back({.ends = std::vector<int32_t>(size, 0), .room = size / 2});
  }
  Level& level = levels_.back();
  --level.room;
  const std::span<const int32_t> found = bucket(level, hash(text, end));
  const auto place = std::ranges::min_element(
      found, {}, [&](int32_t other) { return other > 0 && same(text, end, other) ? -1 : other; });
  level.ends[static_cast<size_t>(&*place - level.ends.data())] = end;
}

int NgramTable::find(std::span<const Token> text) const {
  const auto end = static_cast<int>(text.size());
  if (end <= n_) return 0;
  const uint64_t key = hash(text, end);
  for (size_t i = levels_.size(); i-- > 0;) {
    int best = 0;
    for (const int32_t other : bucket(levels_[i], key))
      if (other > best && other < end && same(text, end, other)) best = other;
    if (best > 0) return best;
  }
  return 0;
}

}  // namespace skiff::draft

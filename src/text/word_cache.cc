#include "text/word_cache.h"

namespace skiff {

bool WordCache::find(std::string_view word, std::vector<int32_t>& out) {
  if (word.size() > kMaxWord) return false;
  Shard& shard = shard_of(word);
  const std::lock_guard lock(shard.mutex);
  const auto it = shard.words.find(word);
  if (it == shard.words.end()) return false;
  out.insert(out.end(), it->second.begin(), it->second.end());
  return true;
}

void WordCache::store(std::string_view word, const int32_t* tokens, size_t count) {
  if (word.size() > kMaxWord) return;
  Shard& shard = shard_of(word);
  const std::lock_guard lock(shard.mutex);
  if (shard.words.size() >= kMaxWords) shard.words.clear();
  shard.words.emplace(std::string(word), std::vector<int32_t>(tokens, tokens + count));
}

}  // namespace skiff

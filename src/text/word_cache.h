// text/word_cache.h -- remembers the tokens of words already encoded. Bounded; safe from any
// thread.
#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

#include "text/string_map.h"

namespace skiff {

class WordCache {
 public:
  static constexpr size_t kMaxWord = 48;  // bytes; longer words hardly come again

  // Appends the tokens of `word` to `out` and says true, or says false.
  bool find(std::string_view word, std::vector<int32_t>& out);
  void store(std::string_view word, const int32_t* tokens, size_t count);

 private:
  static constexpr size_t kShards = 32, kMaxWords = 4096;  // at most 131,072 words, about 20 MB
  struct alignas(64) Shard {
    std::mutex mutex;
    StringMap<std::vector<int32_t>> words;
  };
  Shard& shard_of(std::string_view word) { return shards_[StringHash{}(word) % kShards]; }

  std::array<Shard, kShards> shards_;
};

}  // namespace skiff

// kv/cache_testing.h -- sequences that only put tokens into a cache index or look for them there.
#pragma once
#include <gtest/gtest.h>

#include <vector>

#include "kv/cache_index.h"

namespace skiff::kv {

using Tokens = std::vector<Token>;

// Returns the table of a sequence that has computed and published all its tokens.
inline BlockTable filled(CacheIndex& cache, const Tokens& tokens) {
  BlockTable table;
  cache.open(table, tokens);
  EXPECT_TRUE(cache.grow(table, static_cast<int>(tokens.size())));
  cache.publish(table, tokens, static_cast<int>(tokens.size()));
  return table;
}

// Fills as filled() does, and closes the sequence.
inline void fill(CacheIndex& cache, const Tokens& tokens, const CacheSharing& sharing) {
  BlockTable table;
  table.sharing = sharing;
  cache.open(table, tokens);
  ASSERT_TRUE(cache.grow(table, static_cast<int>(tokens.size())));
  cache.publish(table, tokens, static_cast<int>(tokens.size()));
  cache.close(table);
}

// Returns how many leading tokens a new sequence finds.
inline int cached(CacheIndex& cache, const Tokens& tokens, const CacheSharing& sharing = {}) {
  BlockTable table;
  table.sharing = sharing;
  const int n = cache.open(table, tokens);
  cache.close(table);
  return n;
}

inline CacheSharing with_adapter(const char* name) {
  return {.salt = {}, .extras = {{.identity = name}}};
}

// Placeholders of one image stand at positions [2, 5).
inline CacheSharing with_image(const char* digest) {
  return {.salt = {}, .extras = {{.begin = 2, .end = 5, .identity = digest}}};
}

}  // namespace skiff::kv

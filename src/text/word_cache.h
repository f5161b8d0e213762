// text/word_cache.h -- a bounded, lock-free cache of the tokens of words already encoded.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace skiff::text {

// A direct-mapped table: a word replaces the one that occupied its slot. A slot is one cache line,
// guarded by a sequence number (Boehm 2012, "Can Seqlocks Get Along with Programming Language
// Memory Models?"): a reader who meets a writer sees a miss. Safe from any thread.
class WordCache {
 public:
  static constexpr size_t kMaxWord = 32, kMaxTokens = 6;  // longer words rarely repeat

  // A lookup key: a word of 1 to kMaxWord bytes. `kind` (0 or 1) distinguishes two meanings of the
  // same text.
  class Key {
   public:
    Key(std::string_view word, unsigned kind);

   private:
    friend class WordCache;
    std::array<uint64_t, kMaxWord / 8> words_;
    size_t count_;
    uint64_t hash_, tag_;
  };

  WordCache() : slots_(kSlots) {}
  // Appends the tokens of the word to `out` and returns true, or returns false if it is not cached.
  bool find(const Key& key, std::vector<int32_t>& out) const;
  // Stores the tokens of the word. Does nothing if there are more than kMaxTokens or another thread
  // writes to the slot.
  void store(const Key& key, const int32_t* tokens, size_t count);

 private:
  static constexpr size_t kSlots = 1 << 16;  // 4 MiB
  struct alignas(64) Slot {
    std::atomic<uint64_t> head{0};  // see word_cache.cc
    std::array<std::atomic<uint64_t>, kMaxWord / 8> word{};
    std::array<std::atomic<uint64_t>, kMaxTokens / 2> tokens{};
  };
  std::vector<Slot> slots_;
};

}  // namespace skiff::text

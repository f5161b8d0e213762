// kv/block_key.h -- the name of a block, valid outside the process that computed it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "message/request.h"

namespace skiff::kv {

// SHA-256 of all that the keys and values of a block depend on: the model and how it is computed
// (the fingerprint), the salt, and every token and extra up to the block's end, chained block by
// block. Two blocks with the same key hold the same bytes; nobody can construct two different
// blocks with one key.
using BlockKey = std::array<uint8_t, 32>;

// The parent of a text's first block.
BlockKey root_key(std::string_view fingerprint, std::string_view salt);
BlockKey child_key(const BlockKey& parent, std::span<const Token> tokens,
                   std::string_view extra = {});
// The name of a block that holds only these tokens, fewer than a block has room for. No full block
// has such a name, and no name follows from it.
BlockKey partial_key(const BlockKey& parent, std::span<const Token> tokens,
                     std::string_view extra = {});
// Returns the extras that overlap positions [begin, end) as one string, empty if there are none.
// Two blocks after the same parent have equal strings exactly if they have equal extras.
std::string extra_of(const CacheSharing& sharing, int begin, int end);
BlockKey sha256(std::span<const std::byte> bytes);

// The hash for hash tables of keys. Its seed is secret, so that nobody can choose tokens whose keys
// collide.
struct BlockKeyHash {
  uint64_t seed = 0;
  size_t operator()(const BlockKey& key) const {
    uint64_t word;
    std::memcpy(&word, key.data(), sizeof word);
    word = (word ^ seed) * 0x9e3779b97f4a7c15ull;
    return word ^ (word >> 32);
  }
};

}  // namespace skiff::kv

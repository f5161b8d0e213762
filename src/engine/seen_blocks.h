// engine/seen_blocks.h -- which blocks of prompts a replica was given lately, so that its prefix
// cache probably holds them. Asking the cache itself would mean asking another thread.
#pragma once
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "message/request.h"

namespace skiff::engine {

using BlockName = uint64_t;

// Returns a name for each full block of the prompt that cached keys and values may stand for, in
// order; the block that holds the last token is none of them, because that one is computed. A name
// depends on all that a cached block is found by: the salt, and the tokens and extras up to its
// end. `seed` keeps others from choosing tokens whose names collide. Empty if the sequence shares
// no blocks.
std::vector<BlockName> block_names(const NewSequence& sequence, int block_size, uint64_t seed);

// The names seen last, at most `capacity` of them. Not thread-safe.
class SeenBlocks {
 public:
  explicit SeenBlocks(size_t capacity) : capacity_(capacity) {}
  // Returns how many of the leading names were seen.
  size_t match(std::span<const BlockName> names) const;
  // Takes the names of one text. The last is forgotten first, as a prefix cache evicts it first.
  void see(std::span<const BlockName> names);
  size_t size() const { return places_.size(); }

 private:
  size_t capacity_;
  std::list<BlockName> latest_;  // the name seen last comes first
  std::unordered_map<BlockName, std::list<BlockName>::iterator> places_;
};

}  // namespace skiff::engine

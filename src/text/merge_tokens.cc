#include "text/merge_tokens.h"

#include <algorithm>

namespace skiff::text {
namespace {

// The tokens of a word as a linked list in an array, while they merge.
struct Symbol {
  int32_t token;
  int32_t previous, next;  // -1: none
  bool gone = false;
};

struct Candidate {
  uint32_t rank;
  int32_t left;
  // Orders by lowest rank, then leftmost; std::push_heap keeps the greatest on top.
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

class Merger {
 public:
  Merger(const MergeTable& merges, std::vector<int32_t>& tokens)
      : merges_(merges), tokens_(tokens), count_(static_cast<int32_t>(tokens.size())) {}

  void run() {
    symbols_.reserve(tokens_.size());
    for (int32_t i = 0; i < count_; ++i)
      symbols_.push_back({tokens_[static_cast<size_t>(i)], i - 1, i + 1 < count_ ? i + 1 : -1});
    for (int32_t i = 0; i + 1 < count_; ++i) offer(i);
    std::make_heap(heap_.begin(), heap_.end());
    heaped_ = true;
    while (!heap_.empty()) step();
    tokens_.clear();
    for (int32_t i = 0; i >= 0; i = at(i).next) tokens_.push_back(at(i).token);
  }

 private:
  Symbol& at(int32_t i) { return symbols_[static_cast<size_t>(i)]; }

  void offer(int32_t left) {
    if (left < 0 || at(left).next < 0) return;
    const uint32_t rank = merges_.rank(at(left).token, at(at(left).next).token);
    if (rank == MergeTable::kNone) return;
    heap_.push_back({rank, left});
    if (heaped_) std::push_heap(heap_.begin(), heap_.end());
  }

  // A candidate in the heap may be stale: it is dropped if another pair now stands at its place.
  // (That pair's text is longer, so it never makes the same token.)
  void step() {
    std::pop_heap(heap_.begin(), heap_.end());
    const Candidate best = heap_.back();
    heap_.pop_back();
    Symbol& left = at(best.left);
    if (left.gone || left.next < 0) return;
    Symbol& right = at(left.next);
    if (merges_.rank(left.token, right.token) != best.rank) return;
    left.token = merges_.made(best.rank);
    left.next = right.next;
    right.gone = true;
    if (left.next >= 0) at(left.next).previous = best.left;
    offer(left.previous);
    offer(best.left);
  }

  const MergeTable& merges_;
  std::vector<int32_t>& tokens_;
  int32_t count_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
  bool heaped_ = false;
};

}  // namespace

size_t merge_few(const MergeTable& merges, int32_t* tokens, uint32_t* ranks, size_t count) {
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) best = ranks[i] < ranks[best] ? i : best;
    if (ranks[best] == MergeTable::kNone) break;
    tokens[best] = merges.made(ranks[best]);
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      tokens[i] = tokens[i + 1];
      ranks[i - 1] = ranks[i];
    }
    if (best > 0) ranks[best - 1] = merges.rank(tokens[best - 1], tokens[best]);
    if (best + 1 < count) ranks[best] = merges.rank(tokens[best], tokens[best + 1]);
  }
  return count;
}

void merge_many(const MergeTable& merges, std::vector<int32_t>& tokens) {
  if (tokens.size() > 1) Merger(merges, tokens).run();
}

}  // namespace skiff::text

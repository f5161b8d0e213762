// sample/edit_list.h -- edits of logits that last from draw to draw.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "message/request.h"

namespace skiff::sample {

// x becomes x + add; -inf bans the token.
struct Edit {
  Token token = 0;
  float add = 0;
  bool operator==(const Edit&) const = default;
};

// A list that names no token twice, in any order, and its state in an EditStore. It must not move
// while an EditStore knows it, and must be released there before it is destroyed.
class EditList {
 public:
  EditList() = default;
  // Takes edits that will not change, in the order of rising tokens.
  explicit EditList(std::vector<Edit> fixed);
  EditList(const EditList&) = delete;
  EditList& operator=(const EditList&) = delete;

  std::span<const Edit> entries() const { return entries_; }
  bool empty() const { return entries_.empty(); }
  void push(const Edit& edit);
  void set(size_t index, const Edit& edit);
  void pop() { entries_.pop_back(); }

 private:
  friend class EditStore;
  std::vector<Edit> entries_;
  bool fixed_ = false;
  std::vector<int32_t> changed_;  // indices; may repeat, and may lie behind the end
  std::vector<int32_t> pages_;    // its pages of the store; empty: it is not in the store
  std::vector<int32_t> first_;    // LogitEdits::first for each page of a fixed list
  uint64_t used_ = 0;             // the last draw that used it
};

}  // namespace skiff::sample

// text/token_index.h -- maps the text of a token to its id. The texts lie in one block of memory,
// indexed by an open-addressing hash table, which is built and freed faster than a map of strings.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace skiff::text {

// Safe from any thread while no text is added.
class TokenIndex {
 public:
  TokenIndex() = default;
  TokenIndex(std::initializer_list<std::pair<std::string_view, int32_t>> tokens) {
    for (const auto& [text, id] : tokens) add(text, id);
  }

  void reserve(size_t tokens);
  // Returns false if the text is already there; it then keeps its id. Holds at most 4 GiB of texts.
  bool add(std::string_view text, int32_t id);
  // Returns -1 if the text is not there.
  int32_t find(std::string_view text) const;

  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  // Entry `index`, counted in the order in which entries were added.
  std::string_view text(size_t index) const {
    return std::string_view(bytes_).substr(entries_[index].at, entries_[index].size);
  }
  int32_t id(size_t index) const { return entries_[index].id; }

 private:
  struct Entry {
    uint32_t at, size;
    int32_t id;
  };
  struct Slot {
    uint32_t hash;
    uint32_t entry;  // kFree, or an index
  };
  static constexpr uint32_t kFree = ~uint32_t{0};

  size_t place(std::string_view text, uint32_t hash) const;
  void resize(size_t slots);

  std::vector<Slot> slots_;  // empty or a power of two, at most half of them in use
  std::vector<Entry> entries_;
  std::string bytes_;
};

}  // namespace skiff::text

// text/byte_trie.h -- finds which of many strings a text begins with.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace skiff::text {

// Immutable; children of a node lie side by side in the order of their bytes.
class ByteTrie {
 public:
  ByteTrie() = default;
  // `entries` are strings with non-negative values. The last of several equal strings counts.
  explicit ByteTrie(std::vector<std::pair<std::string, int32_t>> entries);

  // Calls found(length, value) for every entry that `text` begins with, the shortest first.
  template <class Found>
  void prefixes(std::string_view text, Found found) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<uint8_t>(text[i]));
      if (node == 0) return;
      if (nodes_[node].value >= 0) found(i + 1, nodes_[node].value);
    }
  }

 private:
  struct Node {
    uint32_t first_child = 0;
    uint16_t num_children = 0;
    uint8_t byte = 0;
    int32_t value = -1;
  };
  uint32_t child(uint32_t node,
                 uint8_t byte) const;  // 0: no child, because the root is no node's child

  std::vector<Node> nodes_ = {Node{}};
};

}  // namespace skiff::text

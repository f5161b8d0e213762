#include "text/byte_trie.h"

#include <algorithm>

namespace skiff::text {
namespace {

// Builds the subtree of `node`. The entries [begin, end) share the first `depth` bytes, which lead
// to it.
struct Range {
  uint32_t node;
  size_t begin, end, depth;
};

}  // namespace

ByteTrie::ByteTrie(std::vector<std::pair<std::string, int32_t>> entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Range> open = {{0, 0, entries.size(), 0}};
  while (!open.empty()) {
    Range at = open.back();
    open.pop_back();
    for (; at.begin < at.end && entries[at.begin].first.size() == at.depth; ++at.begin)
      nodes_[at.node].value = entries[at.begin].second;
    nodes_[at.node].first_child = static_cast<uint32_t>(nodes_.size());
    for (size_t begin = at.begin, end; begin < at.end; begin = end) {
      const auto byte = static_cast<uint8_t>(entries[begin].first[at.depth]);
      for (end = begin; end < at.end; ++end)
        if (static_cast<uint8_t>(entries[end].first[at.depth]) != byte) break;
      open.push_back({static_cast<uint32_t>(nodes_.size()), begin, end, at.depth + 1});
      nodes_.push_back({.byte = byte});
      ++nodes_[at.node].num_children;
    }
  }
  nodes_.shrink_to_fit();
}

uint32_t ByteTrie::child(uint32_t node, uint8_t byte) const {
  const Node& parent = nodes_[node];
  const auto begin = nodes_.begin() + parent.first_child, end = begin + parent.num_children;
  const auto it =
      std::lower_bound(begin, end, byte, [](const Node& n, uint8_t b) { return n.byte < b; });
  return it == end || it->byte != byte ? 0 : static_cast<uint32_t>(it - nodes_.begin());
}

}  // namespace skiff::text

// grammar/vocabulary.h -- the tokens of a model as a trie over their bytes, made once for each
// tokenizer.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/byte_set.h"
#include "text/tokenizer.h"

namespace skiff::grammar {

// A trie in depth-first order: the descendants of node n are [n + 1, n + size[n]), so a prefix that
// fails is left by one addition. Node 0 is the root.
struct TokenTrie {
  struct Node {
    uint32_t size = 1;         // itself and its descendants
    uint32_t first_token = 0;  // in `tokens`; behind its own stand those of its descendants
    uint16_t num_tokens = 0;   // its own
    uint16_t depth = 0;        // the distance from the root, which has 0
    uint8_t byte = 0;
    bool plain = false;  // it and its descendants have plain tokens only (Vocabulary)
  };
  std::vector<Node> nodes;
  std::vector<int32_t> tokens;
  // The tokens of a node's descendants.
  std::span<const int32_t> below(uint32_t node) const {
    const uint32_t begin = nodes[node].first_token + nodes[node].num_tokens;
    const uint32_t next = node + nodes[node].size;
    const size_t end = next < nodes.size() ? nodes[next].first_token : tokens.size();
    return {tokens.data() + begin, end - begin};
  }
  int depth = 0;  // the most bytes of a token

  // `words` are sorted by their bytes.
  static TokenTrie of(std::span<const std::pair<std::string_view, int32_t>> words);
};

// The byte that begins and ends a mark, which otherwise has the bytes 0xF7 to 0xFE. UTF-8 has none
// of these bytes, so no text contains a mark and no mark contains text.
inline constexpr uint8_t kMarkByte = 0xFF;

// Returns the mark of a special token: bytes that only the token itself stands for, however a text
// is spelled. Constraints that name the token contain its mark.
std::string mark_of(std::string_view written);
// Returns the written form of a mark, and any other piece as it is.
std::string written_form(std::string_view piece);

// Immutable; safe from any thread.
class Vocabulary {
 public:
  // `pieces[t]` are the bytes that token t stands for, or its mark; empty: it stands for nothing
  // (an unused id) and is never allowed, and neither are tokens that hold kMarkByte and are no
  // mark. `width` is that of the logits, at least pieces.size(). `ends` are the tokens that end a
  // text.
  Vocabulary(std::vector<std::string> pieces, int width, std::vector<int32_t> ends);
  static std::shared_ptr<const Vocabulary> of(const text::Tokenizer& tokenizer, int width,
                                              std::span<const int32_t> ends);

  int width() const { return width_; }
  size_t mask_words() const { return (static_cast<size_t>(width_) + 31) / 32; }
  std::span<const int32_t> ends() const { return ends_; }
  std::string_view piece(int32_t token) const {
    return token >= 0 && static_cast<size_t>(token) < pieces_.size()
               ? std::string_view(pieces_[static_cast<size_t>(token)])
               : std::string_view();
  }
  const TokenTrie& trie() const { return trie_; }
  // The written form of the longest special token that `text` begins with; "" if there is none.
  std::string_view special_at(std::string_view text) const;

  // Plain tokens consist of whole characters that a JSON string holds as they are: no quote, no
  // backslash, no control character. The tries leave out those, or all others.
  const TokenTrie& without_plain() const { return without_plain_; }
  // Bits of the plain tokens of at most `characters` characters.
  std::span<const uint32_t> plain_mask(uint32_t characters) const;

 private:
  std::vector<std::string> pieces_;
  int width_;
  std::vector<int32_t> ends_;
  TokenTrie trie_, without_plain_;
  std::set<std::string, std::less<>> special_;  // written forms of the special tokens
  ByteSet special_first_;                       // their first bytes
  size_t longest_special_ = 0;
  std::vector<std::vector<uint32_t>> plain_masks_;  // by the number of characters
};

}  // namespace skiff::grammar

#include "grammar/vocabulary.h"

#include <algorithm>

#include "base/check.h"
#include "base/utf8.h"

namespace skiff::grammar {
namespace {

// The number of characters of a plain text; -1 for any other.
int plain_characters(std::string_view text) {
  if (!is_valid_utf8(text)) return -1;
  int count = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || byte == '"' || byte == '\\') return -1;
    if ((byte & 0xC0) != 0x80) ++count;
  }
  return count;
}

void mark_plain(std::span<const uint32_t> plain, TokenTrie& trie) {
  std::vector<uint32_t> others = {0};  // the number of tokens before this one that are not plain
  others.reserve(trie.tokens.size() + 1);
  for (const int32_t token : trie.tokens)
    others.push_back(others.back() + !(plain[static_cast<size_t>(token) / 32] >> (token % 32) & 1));
  for (uint32_t i = 0; i < trie.nodes.size(); ++i) {
    const size_t end =
        static_cast<size_t>(trie.below(i).data() - trie.tokens.data()) + trie.below(i).size();
    trie.nodes[i].plain = others[end] == others[trie.nodes[i].first_token];
  }
}

constexpr int kMarkZero = 0xF7;

// A mark that says something; the same byte may be a token of its own, which no text needs.
bool is_mark(std::string_view piece) {
  const auto byte = static_cast<char>(kMarkByte);
  return piece.size() > 2 && piece.size() % 3 == 2 && piece.find(byte, 1) == piece.size() - 1 &&
         piece.front() == byte;
}

}  // namespace

// Each byte becomes three octal digits.
std::string mark_of(std::string_view written) {
  const auto byte = static_cast<char>(kMarkByte);
  std::string out(1, byte);
  for (const char c : written)
    for (const int shift : {6, 3, 0})
      out += static_cast<char>(kMarkZero + (static_cast<uint8_t>(c) >> shift & 7));
  return out + byte;
}

std::string written_form(std::string_view piece) {
  if (!is_mark(piece)) return std::string(piece);
  std::string out;
  for (size_t i = 1; i + 3 < piece.size(); i += 3) {
    int value = 0;
    for (size_t k = i; k < i + 3; ++k)
      value = 8 * value + (static_cast<uint8_t>(piece[k]) - kMarkZero);
    out += static_cast<char>(value);
  }
  return out;
}

TokenTrie TokenTrie::of(std::span<const std::pair<std::string_view, int32_t>> words) {
  TokenTrie trie;
  trie.nodes.emplace_back();
  std::vector<uint32_t> path = {0};  // the nodes of the last word
  std::string_view last;
  const auto close = [&](size_t keep) {
    for (; path.size() > keep; path.pop_back())
      trie.nodes[path.back()].size = static_cast<uint32_t>(trie.nodes.size()) - path.back();
  };
  for (const auto& [word, token] : words) {
    size_t same = 0;
    while (same < word.size() && same < last.size() && word[same] == last[same]) ++same;
    close(same + 1);
    for (size_t i = same; i < word.size(); ++i) {
      path.push_back(static_cast<uint32_t>(trie.nodes.size()));
      trie.nodes.push_back({.first_token = static_cast<uint32_t>(trie.tokens.size()),
                            .depth = static_cast<uint16_t>(i + 1),
                            .byte = static_cast<uint8_t>(word[i])});
    }
    ++trie.nodes[path.back()].num_tokens;
    trie.tokens.push_back(token);
    trie.depth = std::max(trie.depth, static_cast<int>(word.size()));
    last = word;
  }
  close(0);
  return trie;
}

Vocabulary::Vocabulary(std::vector<std::string> pieces, int width, std::vector<int32_t> ends)
    : pieces_(std::move(pieces)), width_(width), ends_(std::move(ends)) {
  SKIFF_CHECK(static_cast<size_t>(width_) >= pieces_.size(), "{} tokens, but {} logits",
              pieces_.size(), width_);
  constexpr size_t kMaxToken = 4096;  // longer ones are never allowed
  std::vector<std::pair<std::string_view, int32_t>> words, others;
  std::vector<std::pair<int, int32_t>> plain;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const bool mark = is_mark(pieces_[i]);
    if (!mark && pieces_[i].find(static_cast<char>(kMarkByte)) != std::string::npos)
      pieces_[i].clear();
    if (pieces_[i].empty() || pieces_[i].size() > kMaxToken) continue;
    const auto token = static_cast<int32_t>(i);
    if (std::find(ends_.begin(), ends_.end(), token) != ends_.end()) continue;
    if (mark) {
      const std::string written = written_form(pieces_[i]);
      special_.insert(written);
      special_first_.add(static_cast<uint8_t>(written.front()));
      longest_special_ = std::max(longest_special_, written.size());
    }
    words.emplace_back(pieces_[i], token);
    const int characters = plain_characters(pieces_[i]);
    if (characters >= 0)
      plain.emplace_back(characters, token);
    else
      others.emplace_back(pieces_[i], token);
  }
  std::sort(words.begin(), words.end());
  std::sort(others.begin(), others.end());
  std::sort(plain.begin(), plain.end());
  trie_ = TokenTrie::of(words);
  without_plain_ = TokenTrie::of(others);
  plain_masks_.emplace_back(mask_words(), 0);
  for (const auto& [characters, token] : plain) {
    while (plain_masks_.size() <= static_cast<size_t>(characters))
      plain_masks_.push_back(plain_masks_.back());
    plain_masks_.back()[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
  }
  mark_plain(plain_masks_.back(), trie_);
}

std::shared_ptr<const Vocabulary> Vocabulary::of(const text::Tokenizer& tokenizer, int width,
                                                 std::span<const int32_t> ends) {
  std::vector<std::string> pieces(static_cast<size_t>(std::min(width, tokenizer.vocab_size())));
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto token = static_cast<int32_t>(i);
    const std::string_view piece = tokenizer.piece(token);
    pieces[i] = tokenizer.is_special(token) && !piece.empty() ? mark_of(piece) : std::string(piece);
  }
  return std::make_shared<Vocabulary>(std::move(pieces), width,
                                      std::vector<int32_t>(ends.begin(), ends.end()));
}

std::string_view Vocabulary::special_at(std::string_view text) const {
  if (text.empty() || !special_first_.has(static_cast<uint8_t>(text.front()))) return {};
  for (size_t size = std::min(text.size(), longest_special_); size > 0; --size)
    if (special_.contains(text.substr(0, size))) return text.substr(0, size);
  return {};
}

std::span<const uint32_t> Vocabulary::plain_mask(uint32_t characters) const {
  return plain_masks_[std::min<size_t>(characters, plain_masks_.size() - 1)];
}

}  // namespace skiff::grammar

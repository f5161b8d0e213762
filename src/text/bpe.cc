#include "text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace skiff {
namespace {

// The tokens of a word as a linked list in an array, while they merge.
struct Symbol {
  int32_t token;
  int32_t previous, next;  // -1: none
  bool gone = false;
};

struct Candidate {
  int32_t rank, left, token;
  // The lowest rank first, then the leftmost; std::push_heap keeps the greatest on top.
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
    const Merge merge = merges_.find(at(left).token, at(at(left).next).token);
    if (merge.rank < 0) return;
    heap_.push_back({merge.rank, left, merge.token});
    if (heaped_) std::push_heap(heap_.begin(), heap_.end());
  }

  void step() {
    std::pop_heap(heap_.begin(), heap_.end());
    const Candidate best = heap_.back();
    heap_.pop_back();
    Symbol& left = at(best.left);
    if (left.gone || left.next < 0) return;
    Symbol& right = at(left.next);
    // An offer outlives its pair. It still stands if the new pair makes the same token: this, with
    // the old rank, is what the reference implementation does.
    const Merge merge = merges_.find(left.token, right.token);
    if (merge.rank < 0 || merge.token != best.token) return;
    left.token = best.token;
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

Bpe::Bpe(BpeModel model) : model_(std::move(model)) {
  const auto token_of = [&](std::string_view text) {
    const auto it = model_.vocab.find(text);
    return it == model_.vocab.end() ? -1 : it->second;
  };
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_token_[byte] = token_of(std::string(1, static_cast<char>(byte)));
    fallback_token_[byte] = token_of(fmt::format("<0x{:02X}>", byte));
  }
  if (!can_part()) return;
  pairs_.emplace();
  for (const auto& [token, id] : model_.vocab) pairs_->add_token(token);
}

// Parts must not meet other than by tokens that hold both sides as text.
bool Bpe::can_part() const {
  const bool fuses = model_.unk >= 0 && model_.fuse_unk &&
                     !(model_.byte_fallback &&
                       *std::min_element(fallback_token_.begin(), fallback_token_.end()) >= 0);
  return !model_.byte_level && !model_.ignore_merges && !model_.fallback_merges && !fuses;
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& out) const {
  if (!pairs_) return encode_part(word, out);
  while (!word.empty()) {
    const size_t part = pairs_->first_part(word);
    encode_part(word.substr(0, part), out);
    word.remove_prefix(part);
  }
}

void Bpe::encode_part(std::string_view word, std::vector<int32_t>& out) const {
  if (word.empty() || cache_.find(word, out)) return;
  std::vector<int32_t> tokens;
  if (model_.ignore_merges) {
    const auto whole = model_.vocab.find(word);
    if (whole != model_.vocab.end()) tokens.push_back(whole->second);
  }
  if (tokens.empty()) {
    first_tokens(word, tokens);
    if (tokens.size() > 1) Merger(model_.merges, tokens).run();
  }
  cache_.store(word, tokens.data(), tokens.size());
  out.insert(out.end(), tokens.begin(), tokens.end());
}

void Bpe::first_tokens(std::string_view word, std::vector<int32_t>& out) const {
  bool unknown = false;  // the character before was
  for (size_t at = 0; at < word.size();) {
    size_t next = at + 1;
    int32_t token = -1;
    if (model_.byte_level) {
      token = byte_token_[static_cast<uint8_t>(word[at])];
    } else {
      next = at;
      utf8_next(word, &next);
      const auto it = model_.vocab.find(word.substr(at, next - at));
      if (it != model_.vocab.end()) token = it->second;
    }
    if (token >= 0)
      out.push_back(token);
    else
      fallback(word.substr(at, next - at), unknown, out);
    unknown = token < 0;
    at = next;
  }
}

void Bpe::fallback(std::string_view character, bool after_unknown,
                   std::vector<int32_t>& out) const {
  const auto token_of = [&](char c) { return fallback_token_[static_cast<uint8_t>(c)]; };
  if (model_.byte_fallback &&
      std::all_of(character.begin(), character.end(), [&](char c) { return token_of(c) >= 0; })) {
    for (const char c : character) out.push_back(token_of(c));
  } else if (model_.unk >= 0) {
    const bool fused = model_.fuse_unk && after_unknown && !out.empty() && out.back() == model_.unk;
    if (!fused) out.push_back(model_.unk);
  }
}

}  // namespace skiff

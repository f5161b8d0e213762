#include "text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "text/merge_tokens.h"
#include "text/utf8_fast.h"

namespace skiff::text {
namespace {

// Kinds of cache entries: a whole word may be a token by itself (ignore_merges), a part may not.
enum CacheKind : unsigned { kWhole = 0, kPart = 1 };

// Scripts without spaces make long words that rarely repeat, although their parts do.
constexpr size_t kMaxForeign = 12;

bool is_ascii(char c) { return static_cast<uint8_t>(c) < 0x80; }

}  // namespace

Bpe::Bpe(BpeModel model) : model_(std::move(model)) {
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_token_[byte] = model_.vocab.find(std::string(1, static_cast<char>(byte)));
    fallback_token_[byte] = model_.vocab.find(fmt::format("<0x{:02X}>", byte));
  }
  all_bytes_ = model_.byte_level && *std::min_element(byte_token_.begin(), byte_token_.end()) >= 0;
  if (all_bytes_) {
    byte_ranks_.reserve(size_t{256} * 256);
    for (const int32_t left : byte_token_)
      for (const int32_t right : byte_token_)
        byte_ranks_.push_back(model_.merges.rank(left, right));
  }
  if (!model_.byte_level) characters_ = CharTokens(model_.vocab);
  if (!can_part()) return;
  pairs_.emplace();
  for (size_t i = 0; i < model_.vocab.size(); ++i) pairs_->add_token(model_.vocab.text(i));
}

// A word may be encoded in parts only if nothing joins two parts but tokens that hold both sides as
// text.
bool Bpe::can_part() const {
  const bool fuses = model_.unk >= 0 && model_.fuse_unk &&
                     !(model_.byte_fallback &&
                       *std::min_element(fallback_token_.begin(), fallback_token_.end()) >= 0);
  return model_.byte_level ? all_bytes_
                           : !model_.ignore_merges && !model_.fallback_merges && !fuses;
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& out) const {
  if (word.empty()) return;
  if (!model_.byte_level && pairs_) return encode_parts(word, out);
  std::optional<WordCache::Key> key;
  if (word.size() <= (is_ascii(word[0]) ? WordCache::kMaxWord : kMaxForeign)) {
    key.emplace(word, kWhole);
    if (cache_.find(*key, out)) return;
  }
  if (model_.ignore_merges) {
    const int32_t whole = model_.vocab.find(word);
    if (whole >= 0) {
      if (key) cache_.store(*key, &whole, 1);
      return out.push_back(whole);
    }
  }
  if (!key && pairs_) return encode_parts(word, out);
  merge(word, key ? &*key : nullptr, out);
}

void Bpe::encode_parts(std::string_view word, std::vector<int32_t>& out) const {
  while (!word.empty()) {
    const std::string_view part = word.substr(0, pairs_->first_part(word));
    word.remove_prefix(part.size());
    if (part.size() > WordCache::kMaxWord) {
      merge(part, nullptr, out);
      continue;
    }
    const WordCache::Key key(part, kPart);
    if (!cache_.find(key, out)) merge(part, &key, out);
  }
}

void Bpe::merge(std::string_view word, const WordCache::Key* key, std::vector<int32_t>& out) const {
  if (all_bytes_ && word.size() <= kShortWord) return merge_bytes(word, key, out);
  std::vector<int32_t> tokens;
  first_tokens(word, tokens);
  if (tokens.size() > kShortWord) {
    merge_many(model_.merges, tokens);
  } else if (tokens.size() > 1) {
    std::array<uint32_t, kShortWord> ranks;
    for (size_t i = 0; i + 1 < tokens.size(); ++i)
      ranks[i] = model_.merges.rank(tokens[i], tokens[i + 1]);
    tokens.resize(merge_few(model_.merges, tokens.data(), ranks.data(), tokens.size()));
  }
  if (key) cache_.store(*key, tokens.data(), tokens.size());
  out.insert(out.end(), tokens.begin(), tokens.end());
}

void Bpe::merge_bytes(std::string_view word, const WordCache::Key* key,
                      std::vector<int32_t>& out) const {
  std::array<int32_t, kShortWord> tokens;
  std::array<uint32_t, kShortWord> ranks;
  for (size_t i = 0; i < word.size(); ++i) {
    const auto byte = static_cast<uint8_t>(word[i]);
    tokens[i] = byte_token_[byte];
    if (i > 0) ranks[i - 1] = byte_ranks_[size_t{static_cast<uint8_t>(word[i - 1])} * 256 + byte];
  }
  const size_t count = merge_few(model_.merges, tokens.data(), ranks.data(), word.size());
  if (key) cache_.store(*key, tokens.data(), count);
  out.insert(out.end(), tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(count));
}

void Bpe::first_tokens(std::string_view word, std::vector<int32_t>& out) const {
  bool unknown = false;  // whether the previous character was unknown
  for (size_t at = 0; at < word.size();) {
    size_t next = at;
    const int32_t token = model_.byte_level ? byte_token_[static_cast<uint8_t>(word[next++])]
                                            : characters_.find(utf8_take(word, &next));
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

}  // namespace skiff::text

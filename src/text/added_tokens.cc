#include "text/added_tokens.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/unicode.h"

namespace skiff::text {
namespace {

// Bounds the work of match_at for any tokenizer file.
constexpr size_t kMaxContent = 1024;

bool is_single_word(std::string_view text, size_t begin, size_t end) {
  size_t i = 0;
  if (begin > 0 && is_word_character(utf8_before(text, begin, &i))) return false;
  i = end;
  return end == text.size() || !is_word_character(utf8_next(text, &i));
}

size_t white_space_before(std::string_view text, size_t end, size_t floor) {
  while (end > floor) {
    size_t start = 0;
    if (!is_white_space(utf8_before(text, end, &start))) break;
    end = start;
  }
  return end;
}

size_t white_space_after(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    size_t next = begin;
    if (!is_white_space(utf8_next(text, &next))) break;
    begin = next;
  }
  return begin;
}

}  // namespace

AddedToken read_added_token(const Fields& entry, int32_t id) {
  AddedToken token;
  token.content = entry.need<std::string>("content");
  if (token.content.size() > kMaxContent)
    fail_load("{}: content of {} bytes, the limit is {}", entry.where(), token.content.size(),
              kMaxContent);
  token.id = id >= 0 ? id : entry.need<int32_t>("id");
  token.special = entry.get("special", false);
  token.normalized = entry.get("normalized", !token.special);
  token.lstrip = entry.get("lstrip", false);
  token.rstrip = entry.get("rstrip", false);
  token.single_word = entry.get("single_word", false);
  return token;
}

void AddedTokens::add(const AddedToken& token, std::string content) {
  if (content.empty() || content.size() > 4 * kMaxContent) return;
  Entry entry{content,      token.id,          token.special, token.lstrip,
              token.rstrip, token.single_word, token.glued};
  auto& lengths = lengths_[static_cast<uint8_t>(content[0])];
  const size_t length = content.size();
  if (!by_content_.emplace(std::move(content), std::move(entry)).second) return;
  const auto place = std::lower_bound(lengths.begin(), lengths.end(), length, std::greater<>());
  if (place == lengths.end() || *place != length) lengths.insert(place, length);
}

const AddedTokens::Entry* AddedTokens::match_at(std::string_view text, size_t at) const {
  for (const size_t length : lengths_[static_cast<uint8_t>(text[at])]) {
    if (length > text.size() - at) continue;
    const auto it = by_content_.find(text.substr(at, length));
    if (it != by_content_.end()) return &it->second;
  }
  return nullptr;
}

void AddedTokens::split(std::string_view text, bool parse_special,
                        std::vector<TextSegment>& out) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    if (lengths_[static_cast<uint8_t>(text[at])].empty()) {  // true for nearly every byte
      ++at;
      continue;
    }
    const Entry* entry = match_at(text, at);
    if (!entry) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + entry->content.size();
    at = end;  // a match that is rejected is still skipped as a whole
    if (entry->special && !parse_special) continue;
    if (entry->glued && (out.empty() || out.back().token < 0 || done != begin)) continue;
    if (entry->single_word && !is_single_word(text, begin, end)) continue;
    if (entry->lstrip) begin = white_space_before(text, begin, done);
    if (entry->rstrip) end = white_space_after(text, end);
    if (begin > done) out.push_back({text.substr(done, begin - done), -1});
    out.push_back({text.substr(begin, end - begin), entry->id});
    done = at = end;
  }
  if (done < text.size()) out.push_back({text.substr(done), -1});
}

}  // namespace skiff::text

#include "text/json_tokenizer.h"

#include <utility>

#include "base/utf8.h"
#include "text/byte_level.h"

namespace skiff::text {

JsonTokenizer::JsonTokenizer(JsonTokenizerParts parts)
    : parts_(std::move(parts)), bpe_(std::move(parts_.bpe)) {}

std::vector<int32_t> JsonTokenizer::encode(std::string_view text,
                                           const EncodeOptions& options) const {
  std::string repaired;
  if (!is_valid_utf8(text)) text = repaired = utf8_sanitized(text);
  std::vector<int32_t> out;
  out.reserve(text.size() / 3 + 4);
  const TextFrame& frame = parts_.frame;
  if (options.add_special) out.insert(out.end(), frame.before.begin(), frame.before.end());
  std::vector<TextSegment> segments;
  parts_.raw.split(text, options.parse_special, segments);
  for (const TextSegment& segment : segments) {
    if (segment.token >= 0)
      out.push_back(segment.token);
    else
      encode_plain(segment.text, segment.text.data() == text.data(), options.parse_special, out);
  }
  if (options.add_special) out.insert(out.end(), frame.after.begin(), frame.after.end());
  return out;
}

void JsonTokenizer::encode_plain(std::string_view text, bool first, bool parse_special,
                                 std::vector<int32_t>& out) const {
  std::string normal;
  if (!parts_.normalizer.empty()) {
    normal = text;
    for (const NormalizeStep& step : parts_.normalizer) step(normal);
    text = normal;
  }
  if (parts_.normalized.empty()) return encode_words(text, first, out);
  std::vector<TextSegment> segments;
  parts_.normalized.split(text, parse_special, segments);
  for (const TextSegment& segment : segments) {
    if (segment.token >= 0)
      out.push_back(segment.token);
    else
      encode_words(segment.text, first && segment.text.data() == text.data(), out);
  }
}

void JsonTokenizer::encode_words(std::string_view text, bool first,
                                 std::vector<int32_t>& out) const {
  if (text.empty()) return;
  const PreTokenizer& cut = parts_.pre_tokenizer;
  if (cut.by_pattern() && !parts_.unigram)
    return cut.for_each_word(text, [&](std::string_view word) { bpe_.encode(word, out); });
  Words words;
  words.list.push_back({text, first});
  for (const SplitStep& step : cut.steps) step(words);
  for (const Word& word : words.list)
    parts_.unigram ? parts_.unigram->encode(word.text, out) : bpe_.encode(word.text, out);
}

bool JsonTokenizer::named(int32_t token) const {
  return token >= 0 && token < vocab_size() && !parts_.written[static_cast<size_t>(token)].empty();
}

std::string_view JsonTokenizer::piece(int32_t token) const {
  return named(token) ? std::string_view(parts_.pieces[static_cast<size_t>(token)])
                      : std::string_view();
}

bool JsonTokenizer::is_special(int32_t token) const {
  return named(token) && parts_.special[static_cast<size_t>(token)];
}

std::optional<int32_t> JsonTokenizer::find(std::string_view token_text) const {
  const auto added = parts_.added.find(token_text);
  if (added != parts_.added.end()) return added->second;
  if (parts_.unigram) return parts_.unigram->find(token_text);
  const BpeModel& model = bpe_.model();
  std::optional<std::string> key(token_text);
  if (model.byte_level) key = bytes_from_alphabet(token_text);
  const int32_t id = key ? model.vocab.find(*key) : -1;
  if (id < 0) return std::nullopt;
  return id;
}

std::string JsonTokenizer::decode(std::span<const int32_t> tokens, bool skip_special) const {
  const auto& texts = parts_.decoder.byte_level() ? parts_.pieces : parts_.written;
  std::vector<std::string> chosen;
  for (const int32_t token : tokens)
    if (named(token) && !(skip_special && is_special(token)))
      chosen.push_back(texts[static_cast<size_t>(token)]);
  return parts_.decoder.join(std::move(chosen));
}

}  // namespace skiff::text

// text/naive_tokenizer_testing.h -- for tests and benchmarks: encodes by the plain definition, on
// strings, with the regex engine and a search of all pairs after every merge. Slow and simple.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/normalizer.h"
#include "text/text_regex.h"

namespace skiff::text {

// Reads a tokenizer.json that splits by isolated regular expressions or not at all.
class NaiveTokenizer {
 public:
  explicit NaiveTokenizer(const Json& file)
      : model_(file.at("model")), normalizer_(read_normalizer(file.at("normalizer"), "naive")) {
    read_steps(file.at("pre_tokenizer"));
    for (const Json& merge : model_.at("merges")) {
      const std::string pair =
          merge.is_string() ? merge.get<std::string>()
                            : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
      ranks_[pair] = ranks_.size();
    }
    for (const Json& token : file.value("added_tokens", Json::array()))
      added_.push_back(token.at("content"));
  }

  // Texts must hold no added token.
  bool can_encode(std::string_view text) const {
    return std::none_of(added_.begin(), added_.end(),
                        [&](const std::string& token) { return text.find(token) != text.npos; });
  }

  // `text` is valid UTF-8.
  std::vector<int32_t> encode(std::string text) const {
    for (const NormalizeStep& step : normalizer_) step(text);
    std::vector<std::string> words{text};
    for (const TextRegex& step : steps_) words = split(words, step);
    std::vector<int32_t> out;
    for (const std::string& word : words) encode_word(word, out);
    return out;
  }

 private:
  void read_steps(const Json& spec) {
    if (spec.is_null()) return;
    const std::string type = spec.at("type");
    if (type == "Sequence") {
      for (const Json& step : spec.at("pretokenizers")) read_steps(step);
    } else if (type == "Split") {
      SKIFF_CHECK(spec.at("behavior") == "Isolated", "{}", spec.dump());
      add_step(spec.at("pattern").at("Regex").get<std::string>());
    } else {
      SKIFF_CHECK(type == "ByteLevel" && !spec.at("add_prefix_space"), "{}", spec.dump());
      byte_level_ = true;
      if (spec.at("use_regex"))
        add_step(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
    }
  }

  void add_step(const std::string& pattern) {
    auto regex = TextRegex::compile(pattern);
    SKIFF_CHECK(regex, "{}", regex.error().what);
    steps_.push_back(std::move(*regex));
  }

  static std::vector<std::string> split(const std::vector<std::string>& texts,
                                        const TextRegex& regex) {
    std::vector<std::string> words;
    TextRegex::Scan scan(regex);
    for (const std::string& text : texts) {
      std::vector<TextRange> matches;
      scan.find_all(text, matches);
      size_t done = 0;
      for (const TextRange match : matches) {
        if (match.begin > done) words.push_back(text.substr(done, match.begin - done));
        words.push_back(text.substr(match.begin, match.end - match.begin));
        done = match.end;
      }
      if (done < text.size()) words.push_back(text.substr(done));
    }
    return words;
  }

  // Returns the word's tokens before any merge, as the vocabulary writes them.
  std::vector<std::string> first_tokens(const std::string& word) const {
    const Json& vocab = model_.at("vocab");
    std::vector<std::string> tokens;
    for (size_t at = 0; at < word.size();) {
      size_t next = at + 1;
      if (!byte_level_) utf8_next(word, &(next = at));
      const std::string character = word.substr(at, next - at);
      if (byte_level_) {
        tokens.push_back(alphabet_from_bytes(character));
      } else if (vocab.contains(character)) {
        tokens.push_back(character);
      } else {
        for (const char byte : character)
          tokens.push_back(fmt::format("<0x{:02X}>", static_cast<uint8_t>(byte)));
      }
      at = next;
    }
    return tokens;
  }

  void encode_word(const std::string& word, std::vector<int32_t>& out) const {
    const Json& vocab = model_.at("vocab");
    const std::string written = byte_level_ ? alphabet_from_bytes(word) : word;
    std::vector<std::string> tokens{written};
    if (!model_.value("ignore_merges", false) || !vocab.contains(written)) {
      tokens = first_tokens(word);
      while (merge_one(tokens)) {
      }
    }
    for (const std::string& token : tokens) out.push_back(vocab.at(token));
  }

  // Merges the leftmost pair of the lowest rank; false if no pair merges.
  bool merge_one(std::vector<std::string>& tokens) const {
    size_t best = 0, lowest = ranks_.size();
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto it = ranks_.find(tokens[i] + " " + tokens[i + 1]);
      if (it == ranks_.end() || it->second >= lowest) continue;
      best = i;
      lowest = it->second;
    }
    if (lowest == ranks_.size()) return false;
    tokens[best] += tokens[best + 1];
    tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(best) + 1);
    return true;
  }

  Json model_;
  std::vector<NormalizeStep> normalizer_;
  std::vector<TextRegex> steps_;
  std::unordered_map<std::string, size_t> ranks_;  // by "left right"
  std::vector<std::string> added_;
  bool byte_level_ = false;
};

}  // namespace skiff::text

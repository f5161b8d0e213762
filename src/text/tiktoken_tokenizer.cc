#include "text/tiktoken_tokenizer.h"

#include <algorithm>
#include <utility>

#include "text/bpe_reader.h"
#include "text/byte_level.h"
#include "text/json_tokenizer.h"
#include "text/rank_file.h"
#include "text/tiktoken_family.h"

namespace skiff::text {
namespace {

class Builder {
 public:
  Builder(std::string_view bytes, const TokenizerConfig& config, const std::string& where)
      : config_(config),
        where_(where),
        tokens_(read_rank_file(bytes, where)),
        family_(tiktoken_family(config, tokens_.size(), where)) {}

  std::unique_ptr<Tokenizer> run() {
    read_steps();
    parts_.bpe = bpe_of_ranks(tokens_);
    for (std::string& token : tokens_) {
      parts_.written.push_back(alphabet_from_bytes(token));
      parts_.pieces.push_back(std::move(token));
    }
    parts_.special.resize(parts_.written.size());
    add_specials();
    parts_.bos = config_.bos.empty() ? family_.bos : config_.bos;
    parts_.eos = config_.eos.empty() ? family_.eos : config_.eos;
    read_frame();
    return std::make_unique<JsonTokenizer>(std::move(parts_));
  }

 private:
  void read_steps() {
    const Json level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    const Json split = {
        {"type", "Split"}, {"pattern", {{"Regex", family_.pattern}}}, {"behavior", "Isolated"}};
    parts_.pre_tokenizer = read_pre_tokenizer(
        {{"type", "Sequence"}, {"pretokenizers", Json::array({split, level})}}, where_);
    parts_.decoder = TokenDecoder::read(level, where_);
    if (family_.nfc) parts_.normalizer = read_normalizer({{"type", "NFC"}}, where_);
  }

  void add_specials() {
    const size_t ranks = parts_.written.size();
    for (const AddedToken& token : config_.added) add(token);
    for (size_t i = 0; i < family_.specials.size(); ++i) {
      const std::string& content = family_.specials[i];
      const size_t id = ranks + i;
      const bool taken = id < parts_.written.size() && !parts_.written[id].empty();
      if (content.empty() || taken || parts_.added.contains(content)) continue;
      add({.content = content, .id = static_cast<int32_t>(id), .special = true});
    }
  }

  void add(AddedToken token) {
    const auto at = static_cast<size_t>(token.id);
    if (token.content.empty() || token.id < 0 || token.id > kMaxTokenId)
      fail_load("added tokens beside {}: \"{}\" has the id {}, not one of 0 to {}", where_,
                token.content, token.id, kMaxTokenId);
    if (at >= parts_.written.size()) {
      parts_.written.resize(at + 1);
      parts_.pieces.resize(at + 1);
      parts_.special.resize(at + 1);
    }
    if (!parts_.written[at].empty() || !parts_.added.emplace(token.content, token.id).second)
      fail_load("added tokens beside {}: \"{}\" or its id {} is taken", where_, token.content,
                token.id);
    parts_.written[at] = parts_.pieces[at] = token.content;
    token.special = token.special || config_.is_special(token.content);
    parts_.special[at] = token.special;
    // The reference looks for special tokens in the text as it is after normalization.
    (family_.nfc ? parts_.normalized : parts_.raw).add(token, token.content);
  }

  void read_frame() {
    TextFrame& frame = parts_.frame;
    if (config_.add_bos.value_or(true))
      for (const std::string& token : family_.before) put(token, frame.before);
    if (config_.add_bos.value_or(false) && frame.before.empty()) put(parts_.bos, frame.before);
    if (config_.add_eos.value_or(false)) put(parts_.eos, frame.after);
  }

  void put(const std::string& token, std::vector<int32_t>& side) const {
    const auto it = parts_.added.find(token);
    if (it == parts_.added.end())
      fail_load("{}: \"{}\" belongs around texts but is no special token", where_, token);
    side.push_back(it->second);
  }

  const TokenizerConfig& config_;
  const std::string& where_;
  std::vector<std::string> tokens_;
  TiktokenFamily family_;
  JsonTokenizerParts parts_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> parse_tiktoken(std::string_view bytes,
                                                  const TokenizerConfig& config,
                                                  const std::string& where) {
  try {
    return Builder(bytes, config, where).run();
  } catch (const LoadError& e) {
    const std::string what = e.what();
    const bool unsupported = what.find("not supported") != what.npos;
    return Error{unsupported ? Code::kUnsupported : Code::kInvalid, what};
  }
}

}  // namespace skiff::text

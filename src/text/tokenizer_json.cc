#include "text/tokenizer_json.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "text/bpe_reader.h"
#include "text/json_tokenizer.h"
#include "text/tokenizer_stream.h"

namespace skiff::text {
namespace {

class Builder {
 public:
  Builder(const Json& file, std::optional<BpeLists> lists, const TokenizerConfig& config,
          const std::string& where)
      : file_(file, where), lists_(std::move(lists)), config_(config), where_(where) {}

  std::unique_ptr<Tokenizer> run() {
    parts_.normalizer = read_normalizer(value("normalizer"), where_ + ": normalizer");
    parts_.pre_tokenizer = read_pre_tokenizer(value("pre_tokenizer"), where_ + ": pre_tokenizer");
    parts_.decoder = TokenDecoder::read(value("decoder"), where_ + ": decoder");
    read_model();
    read_added();
    build_pieces();
    read_frame();
    parts_.bos = config_.bos;
    parts_.eos = config_.eos;
    return std::make_unique<JsonTokenizer>(std::move(parts_));
  }

 private:
  const Json& value(const char* key) const {
    static const Json null;
    const auto it = file_.json().find(key);
    return it == file_.json().end() ? null : *it;
  }

  void read_model() {
    if (!file_.has("model")) fail_load("{}: missing key \"model\"", where_);
    const Fields model = file_.child("model");
    if (model.get<std::string>("type", "") == "Unigram") {
      if (parts_.pre_tokenizer.byte_level)
        fail_load("{}: Unigram with a ByteLevel pre_tokenizer is not supported", where_);
      UnigramFile file = read_unigram(model);
      parts_.unigram = std::move(file.model);
      parts_.written = std::move(file.written);
      index_written();
    } else {
      BpeFile file = read_bpe(model, lists_ ? std::move(*lists_) : read_bpe_lists(model),
                              parts_.pre_tokenizer.byte_level);
      parts_.bpe = std::move(file.model);
      parts_.written = std::move(file.written);
      ids_ = std::move(file.ids);
    }
  }

  void index_written() {
    for (size_t id = 0; id < parts_.written.size(); ++id)
      if (!parts_.written[id].empty()) ids_.add(parts_.written[id], static_cast<int32_t>(id));
  }

  // Adds the file's own added tokens, then those that only the configuration names.
  void read_added() {
    const std::string where = where_ + ": added_tokens";
    for (const Json& entry : file_.get<Json::array_t>("added_tokens", {}))
      add(read_added_token(Fields(entry, where), -1), where);
    for (const AddedToken& token : config_.added)
      if (!parts_.added.contains(token.content)) add(token, "added tokens beside " + where_);
    for (const std::string& content : config_.special) {
      if (content.empty() || parts_.added.contains(content)) continue;
      const int32_t id = ids_.find(content);
      if (id >= 0) add({.content = content, .id = id, .special = true}, where);
    }
  }

  void add(AddedToken token, const std::string& where) {
    if (token.content.empty()) fail_load("{}: empty content", where);
    if (token.id < 0 || token.id > kMaxTokenId)
      fail_load("{}: \"{}\" has the id {}, not one of 0 to {}", where, token.content, token.id,
                kMaxTokenId);
    const auto at = static_cast<size_t>(token.id);
    if (at >= parts_.written.size()) parts_.written.resize(at + 1);
    if (!parts_.written[at].empty() && parts_.written[at] != token.content)
      fail_load("{}: \"{}\" has the id {} of \"{}\"", where, token.content, token.id,
                parts_.written[at].substr(0, 80));
    const int32_t known = ids_.find(token.content);
    if (known >= 0 && known != token.id)
      fail_load("{}: \"{}\" has the ids {} and {}", where, token.content, known, token.id);
    ids_.add(token.content, token.id);
    parts_.written[at] = token.content;
    parts_.added.emplace(token.content, token.id);
    token.special = token.special || config_.is_special(token.content);
    added_.emplace(token.id, token);
    std::string content = token.content;
    if (token.normalized)
      for (const NormalizeStep& step : parts_.normalizer) step(content);
    (token.normalized ? parts_.normalized : parts_.raw).add(token, std::move(content));
  }

  void build_pieces() {
    parts_.special.resize(parts_.written.size());
    parts_.pieces.resize(parts_.written.size());
    for (size_t id = 0; id < parts_.written.size(); ++id) {
      const auto added = added_.find(static_cast<int32_t>(id));
      parts_.special[id] = added != added_.end() && added->second.special;
      // The reference puts added tokens through ByteLevel as well.
      const bool as_written =
          added != added_.end() && (parts_.special[id] || !parts_.decoder.byte_level());
      parts_.pieces[id] =
          as_written ? parts_.written[id] : parts_.decoder.piece(parts_.written[id]);
    }
  }

  void read_frame() {
    parts_.frame = read_post_processor(value("post_processor"), where_ + ": post_processor");
    TextFrame& frame = parts_.frame;
    const bool told = config_.add_bos || config_.add_eos;
    if (told || (!frame.given && config_.is_llama())) {
      frame = {};
      put(config_.add_bos.value_or(!told), config_.bos, "add_bos_token", frame.before);
      put(config_.add_eos.value_or(false), config_.eos, "add_eos_token", frame.after);
    }
    for (const auto* side : {&frame.before, &frame.after})
      for (const int32_t id : *side)
        if (id < 0 || static_cast<size_t>(id) >= parts_.written.size())
          fail_load("{}: post_processor: there is no token {}", where_, id);
  }

  void put(bool wanted, const std::string& token, const char* key, std::vector<int32_t>& side) {
    if (!wanted || token.empty()) return;
    const int32_t id = ids_.find(token);
    if (id < 0)
      fail_load("{}: {} is set but \"{}\" is not in the vocabulary", where_, key,
                token.substr(0, 80));
    side.push_back(id);
  }

  Fields file_;
  std::optional<BpeLists> lists_;
  const TokenizerConfig& config_;
  const std::string& where_;
  JsonTokenizerParts parts_;
  TokenIndex ids_;                       // by written form
  std::map<int32_t, AddedToken> added_;  // by id
};

}  // namespace

std::unique_ptr<Tokenizer> make_json_tokenizer(const Json& file, const TokenizerConfig& config,
                                               const std::string& where) {
  return Builder(file, std::nullopt, config, where).run();
}

Result<std::unique_ptr<Tokenizer>> parse_tokenizer_json(std::string_view bytes,
                                                        const TokenizerConfig& config,
                                                        const std::string& where) {
  try {
    if (auto stream = stream_tokenizer_json(bytes))
      return Builder(stream->file, std::move(stream->lists), config, where).run();
    const auto json = parse_json(bytes);
    if (!json) return Error{json.error().code, fmt::format("{}: {}", where, json.error().what)};
    return make_json_tokenizer(*json, config, where);
  } catch (const LoadError& e) {
    const std::string what = e.what();
    const bool unsupported = what.find("not supported") != what.npos;
    return Error{unsupported ? Code::kUnsupported : Code::kInvalid, what};
  }
}

}  // namespace skiff::text

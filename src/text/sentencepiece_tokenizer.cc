#include "text/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "text/added_tokens.h"
#include "text/sentencepiece_check.h"
#include "text/sentencepiece_family.h"
#include "text/string_map.h"

namespace skiff::text {
namespace {

using sentencepiece::SentencePieceProcessor;

constexpr std::string_view kSpaceMark = "\u2581";
constexpr int32_t kMaxTokenId = (1 << 21) - 1;

std::string with_spaces(std::string_view piece) {
  std::string out;
  for (size_t at; (at = piece.find(kSpaceMark)) != piece.npos;) {
    out.append(piece.substr(0, at)) += ' ';
    piece.remove_prefix(at + kSpaceMark.size());
  }
  return out.append(piece);
}

struct Entry {
  std::string piece;
  bool special = false, added = false;
};

struct Parts {
  std::unique_ptr<SentencePieceProcessor> model;
  std::unique_ptr<SentencePieceProcessor> later;  // adds no leading space; null if not needed
  AddedTokens added;
  std::vector<Entry> entries;
  StringMap<int32_t> ids;  // by written form
  std::vector<int32_t> before, after;
  std::string bos, eos;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(Parts parts) : parts_(std::move(parts)) {}

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<int32_t> out;
    if (options.add_special) out = parts_.before;
    std::vector<TextSegment> segments;
    parts_.added.split(text, options.parse_special, segments);
    for (const TextSegment& segment : segments) {
      if (segment.token >= 0)
        out.push_back(segment.token);
      else
        encode_plain(segment.text, segment.text.data() == text.data(), out);
    }
    if (options.add_special) out.insert(out.end(), parts_.after.begin(), parts_.after.end());
    return out;
  }

  std::string_view piece(int32_t token) const override {
    return named(token) ? std::string_view(entry(token).piece) : std::string_view();
  }
  bool is_special(int32_t token) const override { return named(token) && entry(token).special; }
  int vocab_size() const override { return static_cast<int>(parts_.entries.size()); }

  std::optional<int32_t> find(std::string_view token_text) const override {
    const auto it = parts_.ids.find(token_text);
    if (it == parts_.ids.end()) return std::nullopt;
    return it->second;
  }
  std::string bos() const override { return parts_.bos; }
  std::string eos() const override { return parts_.eos; }

  std::string decode(std::span<const int32_t> tokens, bool skip_special) const override {
    std::string out;
    std::vector<int> run;
    bool first = true;
    for (const int32_t token : tokens) {
      if (!named(token) || (skip_special && is_special(token))) continue;
      if (!entry(token).special && !entry(token).added) {
        run.push_back(token);
        continue;
      }
      flush(run, first, out);
      out += entry(token).piece;
      first = false;
    }
    flush(run, first, out);
    return out;
  }

 private:
  const Entry& entry(int32_t token) const { return parts_.entries[static_cast<size_t>(token)]; }
  bool named(int32_t token) const {
    return token >= 0 && token < vocab_size() && !entry(token).piece.empty();
  }
  const SentencePieceProcessor& processor(bool first) const {
    return first || !parts_.later ? *parts_.model : *parts_.later;
  }

  // SentencePiece accepts every text; invalid UTF-8 becomes U+FFFD. It fails only for a model whose
  // tables contradict each other, which the check of the file cannot find; the text is then one
  // unknown token.
  void encode_plain(std::string_view text, bool first, std::vector<int32_t>& out) const {
    std::vector<int> ids;
    if (!processor(first).Encode({text.data(), text.size()}, &ids).ok())
      ids = {processor(first).unk_id()};
    out.insert(out.end(), ids.begin(), ids.end());
  }

  void flush(std::vector<int>& run, bool first, std::string& out) const {
    if (run.empty()) return;
    std::string text;
    if (processor(first).Decode(run, &text).ok()) out += text;
    run.clear();
  }

  Parts parts_;
};

class Loader {
 public:
  Loader(std::string_view bytes, const TokenizerConfig& config, const std::string& where)
      : bytes_(bytes), config_(config), where_(where), family_(sentencepiece_family(config)) {}

  std::unique_ptr<Tokenizer> run() {
    check();
    out_.model = load(bytes_);
    // Appended fields of a message are merged into it: normalizer_spec { add_dummy_prefix: false }.
    if (!config_.legacy) out_.later = load(std::string(bytes_) + "\x1A\x02\x18" + '\0');
    read_pieces();
    for (AddedToken& token : family_.appended) {
      token.id = vocab_size();
      add(token);
    }
    for (const AddedToken& token : config_.added) add(token);
    read_frame();
    return std::make_unique<SentencePieceTokenizer>(std::move(out_));
  }

 private:
  void check() const {
    const auto status = check_sentencepiece_model(bytes_);
    if (!status) fail_load("{}: {}", where_, status.error().what);
  }

  std::unique_ptr<SentencePieceProcessor> load(std::string_view bytes) const {
    auto processor = std::make_unique<SentencePieceProcessor>();
    try {
      const auto status = processor->LoadFromSerializedProto({bytes.data(), bytes.size()});
      if (!status.ok()) fail_load("{}: {}", where_, status.ToString());
    } catch (const LoadError&) {
      throw;
    } catch (const std::exception& e) {
      fail_load("{}: SentencePiece cannot load it: {}", where_, e.what());
    }
    return processor;
  }

  void read_pieces() {
    const SentencePieceProcessor& model = *out_.model;
    const int count = model.GetPieceSize();
    for (int id = 0; id < count; ++id) {
      const std::string& written = model.IdToPiece(id);
      const bool special = model.IsControl(id) || model.IsUnknown(id);
      Entry entry{special ? written : with_spaces(written), special, false};
      if (model.IsByte(id)) entry.piece = byte_of(written);
      out_.entries.push_back(std::move(entry));
      out_.ids.emplace(written, id);
      if (special || config_.is_special(written))
        add({.content = written, .id = id, .special = true});
    }
  }

  std::string byte_of(const std::string& written) const {
    const unsigned long value = std::strtoul(written.c_str() + 1, nullptr, 16);
    if (written.size() != 6 || value > 255) fail_load("{}: {} is not a byte", where_, written);
    return std::string(1, static_cast<char>(value));
  }

  int32_t vocab_size() const { return static_cast<int32_t>(out_.entries.size()); }

  void add(const AddedToken& token) {
    auto& entries = out_.entries;
    if (token.id < 0 || token.id > kMaxTokenId)
      fail_load("added tokens beside {}: \"{}\" has the id {}, not one of 0 to {}", where_,
                token.content, token.id, kMaxTokenId);
    const auto known = out_.ids.emplace(token.content, token.id).first;
    if (known->second != token.id)
      fail_load("added tokens beside {}: \"{}\" has the id {} but is token {} of the model", where_,
                token.content, token.id, known->second);
    const auto at = static_cast<size_t>(token.id);
    if (at >= entries.size()) entries.resize(at + 1);
    const bool special = token.special || config_.is_special(token.content) || entries[at].special;
    entries[at] = {token.content, special, true};
    AddedToken counted = token;
    counted.special = special;
    out_.added.add(counted, token.content);
  }

  void read_frame() {
    const SentencePieceProcessor& model = *out_.model;
    out_.bos = config_.bos.empty() ? name_of(model.bos_id()) : config_.bos;
    out_.eos = config_.eos.empty() ? name_of(model.eos_id()) : config_.eos;
    for (const std::string& token : family_.before) put(token, out_.before);
    if (config_.add_bos.value_or(family_.bos)) put(out_.bos, out_.before);
    if (config_.add_eos.value_or(false)) put(out_.eos, out_.after);
  }

  void put(const std::string& written, std::vector<int32_t>& side) const {
    if (const auto id = id_of(written)) side.push_back(*id);
  }

  std::optional<int32_t> id_of(const std::string& written) const {
    const auto it = out_.ids.find(written);
    if (it == out_.ids.end()) return std::nullopt;
    return it->second;
  }

  std::string name_of(int id) const {
    const bool there = id >= 0 && id < out_.model->GetPieceSize();
    return there ? out_.model->IdToPiece(id) : std::string();
  }

  std::string_view bytes_;
  const TokenizerConfig& config_;
  const std::string& where_;
  SentencePieceFamily family_;
  Parts out_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> parse_sentencepiece(std::string_view bytes,
                                                       const TokenizerConfig& config,
                                                       const std::string& where) {
  try {
    return Loader(bytes, config, where).run();
  } catch (const LoadError& e) {
    return Error{Code::kInvalid, e.what()};
  }
}

}  // namespace skiff::text

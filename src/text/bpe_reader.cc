#include "text/bpe_reader.h"

#include <string_view>
#include <unordered_map>
#include <utility>

#include "text/byte_level.h"

namespace skiff {
namespace {

class Reader {
 public:
  Reader(const Fields& spec, bool byte_level) : spec_(spec), where_(spec.where()) {
    out_.model.byte_level = byte_level;
  }

  BpeFile run() {
    read_flags();
    read_vocab();
    read_merges();
    const auto unk = spec_.get<std::string>("unk_token", "");
    if (!unk.empty()) out_.model.unk = id_of(unk, "unk_token");
    return std::move(out_);
  }

 private:
  void read_flags() {
    const auto type = spec_.get<std::string>("type", "BPE");
    if (type != "BPE")
      fail_load("{} type {} is not supported, only BPE is", where_, type.substr(0, 60));
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (!spec_.get<std::string>(key, "").empty())
        fail_load("{}: {} is not supported", where_, key);
    if (spec_.get("dropout", 0.0) != 0) fail_load("{}: dropout is not supported", where_);
    out_.model.byte_fallback = spec_.get("byte_fallback", false);
    out_.model.fuse_unk = spec_.get("fuse_unk", false);
    out_.model.ignore_merges = spec_.get("ignore_merges", false);
  }

  void read_vocab() {
    const Fields vocab = spec_.child("vocab");
    if (vocab.json().empty()) fail_load("{}: vocab is missing or empty", where_);
    ids_.reserve(vocab.json().size());
    out_.model.vocab.reserve(vocab.json().size());
    for (const auto& [written, value] : vocab.json().items()) {
      const int64_t id = value.is_number_integer() ? value.get<int64_t>() : -1;
      if (id < 0 || id > kMaxTokenId)
        fail_load("{}: vocab: \"{}\" has the id {}, not one of 0 to {}", where_,
                  written.substr(0, 40), value.dump().substr(0, 40), kMaxTokenId);
      add(written, static_cast<int32_t>(id));
    }
  }

  void add(const std::string& written, int32_t id) {
    const auto at = static_cast<size_t>(id);
    if (at >= out_.written.size()) {
      out_.written.resize(at + 1);
      taken_.resize(at + 1);
    }
    if (taken_[at])
      fail_load("{}: vocab: \"{}\" and \"{}\" have the same id {}", where_,
                out_.written[at].substr(0, 40), written.substr(0, 40), id);
    taken_[at] = true;
    out_.written[at] = written;
    ids_.add(written, id);
    if (!out_.model.byte_level) {
      out_.model.vocab.add(written, id);
    } else if (const auto bytes = bytes_from_alphabet(written)) {  // no other token can come up
      out_.model.vocab.add(*bytes, id);
    }
  }

  int32_t id_of(std::string_view token, const char* key) const {
    const int32_t id = ids_.find(token);
    if (id < 0)
      fail_load("{}: {}: \"{}\" is not in the vocabulary", where_, key, token.substr(0, 80));
    return id;
  }

  void read_merges() {
    const auto it = spec_.json().find("merges");
    if (it == spec_.json().end() || !it->is_array())
      fail_load("{}: merges are missing; a BPE tokenizer cannot do without", where_);
    if (it->size() > kMaxTokenId)
      fail_load("{}: {} merges, the limit is {}", where_, it->size(), kMaxTokenId);
    out_.model.merges = MergeTable(it->size());
    int32_t rank = 0;
    for (const Json& merge : *it) {
      const auto [left, right] = pair_of(merge);
      const int32_t made = id_of(std::string(left) + std::string(right), "merges");
      out_.model.merges.add(id_of(left, "merges"), id_of(right, "merges"), {rank++, made});
      out_.model.fallback_merges |= left.starts_with("<0x") || right.starts_with("<0x");
    }
  }

  // Either "left right" or ["left", "right"].
  std::pair<std::string_view, std::string_view> pair_of(const Json& merge) const {
    if (merge.is_string()) {
      const std::string_view text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space != text.npos && text.find(' ', space + 1) == text.npos)
        return {text.substr(0, space), text.substr(space + 1)};
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
    }
    fail_load("{}: merges: {} is not a pair of tokens", where_, merge.dump().substr(0, 80));
  }

  const Fields& spec_;
  const std::string& where_;
  BpeFile out_;
  std::vector<bool> taken_;
  TokenIndex ids_;  // by written form
};

}  // namespace

BpeFile read_bpe(const Fields& spec, bool byte_level) { return Reader(spec, byte_level).run(); }

}  // namespace skiff

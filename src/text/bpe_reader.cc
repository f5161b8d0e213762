#include "text/bpe_reader.h"

#include "text/byte_level.h"

namespace skiff::text {
namespace {

// A merge is either "left right" or ["left", "right"].
std::pair<std::string_view, std::string_view> pair_of(const Json& merge, const std::string& where) {
  if (merge.is_string()) {
    const auto pair = split_merge(merge.get_ref<const std::string&>());
    if (pair.first.data()) return pair;
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
             merge[1].is_string()) {
    return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  }
  fail_load("{}: merges: {} is not a pair of tokens", where, merge.dump().substr(0, 80));
}

void check_type(const Fields& spec) {
  const auto type = spec.get<std::string>("type", "BPE");
  if (type != "BPE")
    fail_load("{} type {} is not supported, only BPE is", spec.where(), type.substr(0, 60));
}

TokenIndex read_vocab(const Fields& spec) {
  const Fields vocab = spec.child("vocab");
  TokenIndex out;
  out.reserve(vocab.json().size());
  for (const auto& [written, value] : vocab.json().items()) {
    const int64_t id = value.is_number_integer() ? value.get<int64_t>() : -1;
    if (id < 0 || id > kMaxTokenId)
      fail_load("{}: vocab: \"{}\" has the id {}, not one of 0 to {}", spec.where(),
                written.substr(0, 40), value.dump().substr(0, 40), kMaxTokenId);
    out.add(written, static_cast<int32_t>(id));
  }
  return out;
}

class Reader {
 public:
  Reader(const Fields& spec, BpeLists lists, bool byte_level)
      : spec_(spec), where_(spec.where()), merges_(std::move(lists.merges)) {
    out_.model.byte_level = byte_level;
    out_.ids = std::move(lists.vocab);
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
    check_type(spec_);
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (!spec_.get<std::string>(key, "").empty())
        fail_load("{}: {} is not supported", where_, key);
    if (spec_.get("dropout", 0.0) != 0) fail_load("{}: dropout is not supported", where_);
    out_.model.byte_fallback = spec_.get("byte_fallback", false);
    out_.model.fuse_unk = spec_.get("fuse_unk", false);
    out_.model.ignore_merges = spec_.get("ignore_merges", false);
  }

  void read_vocab() {
    if (out_.ids.empty()) fail_load("{}: vocab is missing or empty", where_);
    out_.model.vocab.reserve(out_.ids.size());
    out_.written.reserve(out_.ids.size());
    for (size_t i = 0; i < out_.ids.size(); ++i) add(out_.ids.text(i), out_.ids.id(i));
  }

  void add(std::string_view written, int32_t id) {
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
    if (!out_.model.byte_level) {
      out_.model.vocab.add(written, id);
      return;
    }
    bytes_.clear();
    // Tokens outside the alphabet are left out: byte-level words cannot produce them.
    if (append_bytes_from_alphabet(written, bytes_)) out_.model.vocab.add(bytes_, id);
  }

  int32_t id_of(std::string_view token, const char* key) const {
    const int32_t id = out_.ids.find(token);
    if (id < 0)
      fail_load("{}: {}: \"{}\" is not in the vocabulary", where_, key, token.substr(0, 80));
    return id;
  }

  void read_merges() {
    out_.model.merges = MergeTable(merges_.size());
    for (size_t i = 0; i < merges_.size(); ++i) {
      const std::string_view left = merges_.left(i), right = merges_.right(i);
      out_.model.merges.add(id_of(left, "merges"), id_of(right, "merges"),
                            {static_cast<int32_t>(i), id_of(merges_.both(i), "merges")});
      out_.model.fallback_merges |= left.starts_with("<0x") || right.starts_with("<0x");
    }
  }

  const Fields& spec_;
  const std::string& where_;
  MergeList merges_;
  BpeFile out_;
  std::vector<bool> taken_;
  std::string bytes_;
};

}  // namespace

std::pair<std::string_view, std::string_view> split_merge(std::string_view written) {
  const size_t space = written.find(' ');
  if (space == written.npos || written.find(' ', space + 1) != written.npos) return {};
  return {written.substr(0, space), written.substr(space + 1)};
}

BpeLists read_bpe_lists(const Fields& spec) {
  check_type(spec);
  BpeLists out;
  out.vocab = read_vocab(spec);
  const auto it = spec.json().find("merges");
  if (it == spec.json().end() || !it->is_array())
    fail_load("{}: merges are missing; a BPE tokenizer cannot do without", spec.where());
  if (it->size() > kMaxTokenId)
    fail_load("{}: {} merges, the limit is {}", spec.where(), it->size(), kMaxTokenId);
  for (const Json& merge : *it) {
    const auto [left, right] = pair_of(merge, spec.where());
    out.merges.add(left, right);
  }
  return out;
}

BpeFile read_bpe(const Fields& spec, BpeLists lists, bool byte_level) {
  return Reader(spec, std::move(lists), byte_level).run();
}

}  // namespace skiff::text

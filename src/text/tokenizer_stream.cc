#include "text/tokenizer_stream.h"

#include <string>
#include <utility>

#include "base/json_builder.h"

namespace skiff::text {
namespace {

// Handles the events inside model.vocab and model.merges and forwards all others. A method returns
// false to stop parsing.
class Handler {
 public:
  Handler(const JsonLimits& limits, size_t max_keys) : builder_(limits.max_depth, max_keys) {}

  TokenizerStream take() {
    out_.file = builder_.take();
    return std::move(out_);
  }
  bool complete() const { return seen_vocab_ && seen_merges_; }

  bool null() { return at_ == At::kElsewhere && builder_.null(); }
  bool boolean(bool v) { return at_ == At::kElsewhere && builder_.boolean(v); }
  bool number_integer(Json::number_integer_t v) {
    return at_ == At::kElsewhere && builder_.number_integer(v);
  }
  bool number_unsigned(Json::number_unsigned_t v) {
    if (at_ == At::kElsewhere) return builder_.number_unsigned(v);
    return at_ == At::kVocab && v <= static_cast<uint64_t>(kMaxTokenId) &&
           out_.lists.vocab.add(name_, static_cast<int32_t>(v));
  }
  bool number_float(Json::number_float_t v, const std::string& text) {
    return at_ == At::kElsewhere && builder_.number_float(v, text);
  }
  bool binary(Json::binary_t&) { return false; }

  bool string(std::string& v) {
    if (at_ == At::kElsewhere) return builder_.string(v);
    if (at_ == At::kMerges) {
      const auto [left, right] = split_merge(v);
      return left.data() && add_merge(left, right);
    }
    if (at_ != At::kMerge || parts_ == 2) return false;
    pair_[parts_++] = v;
    return true;
  }

  bool key(std::string& name) {
    if (at_ == At::kVocab) {
      name_ = name;
      return true;
    }
    key_ = name;
    return builder_.key(name);
  }

  bool start_object(size_t size) {
    if (at_ != At::kElsewhere) return false;
    if (in_model() && key_ == "vocab") {
      at_ = At::kVocab;
      return seen_vocab_ = true;
    }
    ++depth_;
    if (depth_ == 2) model_ = key_ == "model";
    return builder_.start_object(size);
  }
  bool end_object() {
    if (at_ == At::kElsewhere) return close() && builder_.end_object();
    at_ = At::kElsewhere;
    return builder_.null();
  }

  bool start_array(size_t size) {
    if (at_ == At::kMerges) {
      at_ = At::kMerge;
      parts_ = 0;
      return true;
    }
    if (at_ != At::kElsewhere) return false;
    if (in_model() && key_ == "merges") {
      at_ = At::kMerges;
      return seen_merges_ = true;
    }
    ++depth_;
    if (depth_ == 2) model_ = false;
    return builder_.start_array(size);
  }
  bool end_array() {
    if (at_ == At::kElsewhere) return close() && builder_.end_array();
    if (at_ == At::kMerge) {
      at_ = At::kMerges;
      return parts_ == 2 && add_merge(pair_[0], pair_[1]);
    }
    at_ = At::kElsewhere;
    return builder_.null();
  }

  template <class Exception>
  bool parse_error(size_t, const std::string&, const Exception&) {
    return false;
  }

 private:
  enum class At { kElsewhere, kVocab, kMerges, kMerge };

  bool in_model() const { return depth_ == 2 && model_; }
  bool close() {
    --depth_;
    return true;
  }
  bool add_merge(std::string_view left, std::string_view right) {
    out_.lists.merges.add(left, right);
    return out_.lists.merges.size() <= static_cast<size_t>(kMaxTokenId);
  }

  JsonBuilder<Json> builder_;
  TokenizerStream out_;
  At at_ = At::kElsewhere;
  int depth_ = 0;       // open containers, without those that are handled here
  bool model_ = false;  // the container at depth 2 is the object "model"
  bool seen_vocab_ = false, seen_merges_ = false;
  std::string key_;      // the last key outside the vocabulary
  std::string name_;     // the last key inside the vocabulary
  std::string pair_[2];  // the two tokens of a merge written as an array
  size_t parts_ = 0;
};

}  // namespace

std::optional<TokenizerStream> stream_tokenizer_json(std::string_view bytes) {
  const JsonLimits limits;
  if (bytes.size() > limits.max_bytes) return std::nullopt;
  try {
    Handler handler(limits, bytes.size());
    if (!Json::sax_parse(bytes.begin(), bytes.end(), &handler) || !handler.complete())
      return std::nullopt;
    return handler.take();
  } catch (const LoadError&) {
    return std::nullopt;
  }
}

}  // namespace skiff::text

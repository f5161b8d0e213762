#include "text/pre_tokenizer.h"

#include <memory>
#include <utility>

#include "text/split_words.h"
#include "text/word_rules.h"

namespace skiff::text {
namespace {

// GPT-2's words: contractions; runs of letters, digits or other signs with an optional space before
// them; and white space, whose last character belongs to the next word.
constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kPunctuation =
    R"([\p{P}\x{21}-\x{2F}\x{3A}-\x{40}\x{5B}-\x{60}\x{7B}-\x{7E}])";
constexpr size_t kMaxSteps = 64, kMaxReplacement = 16;

SplitStep split_step(SplitPattern pattern, SplitBehavior behavior) {
  auto shared = std::make_shared<const SplitPattern>(std::move(pattern));
  return [shared, behavior](Words& words) {
    Splitter splitter(*shared, behavior);
    std::vector<Word> out;
    out.reserve(words.list.size());
    for (const Word& word : words.list)
      for (const TextRange piece : splitter.split(word.text))
        out.push_back({word.text.substr(piece.begin, piece.end - piece.begin),
                       word.first && piece.begin == 0});
    words.list = std::move(out);
  };
}

SplitStep prefix_space_step() {
  return [](Words& words) {
    for (Word& word : words.list)
      if (!word.text.starts_with(' '))
        word.text = words.owned.emplace_back(1, ' ').append(word.text);
  };
}

enum class Prepend { kAlways, kFirst, kNever };

SplitStep metaspace_step(std::string mark, Prepend prepend) {
  return [mark = std::move(mark), prepend](Words& words) {
    for (Word& word : words.list) {
      std::string text;
      for (const char c : word.text) c == ' ' ? text += mark : text += c;
      const bool wanted = prepend == Prepend::kAlways || (prepend == Prepend::kFirst && word.first);
      if (wanted && !text.starts_with(mark)) text.insert(0, mark);
      word.text = words.owned.emplace_back(std::move(text));
    }
  };
}

class Reader {
 public:
  explicit Reader(std::string where) : where_(std::move(where)) {}
  PreTokenizer out;

  void read(const Json& spec) {
    const Fields fields(spec, where_);
    const auto type = fields.need<std::string>("type");
    if (out.byte_level) fail_load("{}: ByteLevel must be the last step", where_);
    if (out.steps.size() > kMaxSteps) fail_load("{}: more than {} steps", where_, kMaxSteps);
    if (type == "Sequence") {
      for (const Json& child : fields.need<Json::array_t>("pretokenizers")) read(child);
    } else if (type == "Split") {
      read_split(fields);
    } else if (type == "ByteLevel") {
      read_byte_level(fields);
    } else if (type == "Metaspace") {
      read_metaspace(fields);
    } else if (type == "Digits") {
      split(SplitPattern::from_regex("\\p{N}", where_), fields.get("individual_digits", false)
                                                            ? SplitBehavior::kIsolated
                                                            : SplitBehavior::kContiguous);
    } else if (type == "Punctuation") {
      split(SplitPattern::from_regex(kPunctuation, where_),
            split_behavior(fields.get<std::string>("behavior", "Isolated"), where_));
    } else if (type == "CharDelimiterSplit") {
      SplitPattern pattern;
      pattern.text = fields.need<std::string>("delimiter");
      if (pattern.text.empty()) fail_load("{}: delimiter is empty", where_);
      out.steps.push_back(split_step(std::move(pattern), SplitBehavior::kRemoved));
    } else if (!read_rules(type)) {
      fail_load("{} type {} is not supported", where_, type.substr(0, 60));
    }
  }

 private:
  void split(SplitPattern pattern, SplitBehavior behavior) {
    if (pattern.words && !pattern.invert && behavior == SplitBehavior::kIsolated)
      out.patterns.push_back(*pattern.words);
    out.steps.push_back(split_step(std::move(pattern), behavior));
  }

  bool read_rules(const std::string& type) {
    bool found = false;
    for (const WordRule& rule : kWordRules) {
      if (rule.type != type) continue;
      found = true;
      SplitPattern pattern = SplitPattern::from_regex(rule.pattern, where_);
      pattern.invert = rule.invert;
      out.steps.push_back(split_step(std::move(pattern), rule.behavior));
    }
    return found;
  }

  void read_split(const Fields& fields) {
    SplitPattern pattern = SplitPattern::read(fields.child("pattern"));
    pattern.invert = fields.get("invert", false);
    const auto behavior = split_behavior(fields.need<std::string>("behavior"), where_);
    split(std::move(pattern), behavior);
  }

  void read_byte_level(const Fields& fields) {
    if (fields.get("add_prefix_space", true)) out.steps.push_back(prefix_space_step());
    if (fields.get("use_regex", true))
      split(SplitPattern::from_regex(kGpt2Words, where_), SplitBehavior::kIsolated);
    out.byte_level = true;
  }

  void read_metaspace(const Fields& fields) {
    const auto mark = fields.get<std::string>("replacement", "\u2581");
    if (mark.empty() || mark.size() > kMaxReplacement)
      fail_load("{}: replacement must be one character", where_);
    const bool add = fields.get("add_prefix_space", true);
    const auto scheme = fields.get<std::string>("prepend_scheme", add ? "always" : "never");
    if (scheme != "always" && scheme != "first" && scheme != "never")
      fail_load("{}: prepend_scheme {} is not supported", where_, scheme.substr(0, 60));
    out.steps.push_back(metaspace_step(mark, scheme == "always"  ? Prepend::kAlways
                                             : scheme == "first" ? Prepend::kFirst
                                                                 : Prepend::kNever));
    SplitPattern pattern;
    pattern.text = mark;
    if (fields.get("split", true)) split(std::move(pattern), SplitBehavior::kMergedWithNext);
    if (++metaspaces_ > 1) fail_load("{}: more than one Metaspace", where_);
  }

  std::string where_;
  int metaspaces_ = 0;
};

}  // namespace

PreTokenizer read_pre_tokenizer(const Json& spec, const std::string& where) {
  Reader reader(where);
  if (!spec.is_null()) reader.read(spec);
  return std::move(reader.out);
}

}  // namespace skiff::text

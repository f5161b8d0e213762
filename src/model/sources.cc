#include "model/sources.h"

#include <optional>
#include <set>
#include <string>

#include "base/log.h"
#include "weights/name_list.h"

namespace skiff {
namespace {

constexpr size_t kShown = 5;  // names in an error line

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t bar = text.find('|');
    parts.push_back(text.substr(0, bar));
    if (bar == text.npos) return parts;
    text.remove_prefix(bar + 1);
  }
}

// `pattern` with its {} replaced by the numbers, from the left.
std::string filled(std::string_view pattern, std::initializer_list<int64_t> numbers) {
  std::string name(pattern);
  for (int64_t n : numbers)
    if (const size_t at = name.find("{}"); at != name.npos) name.replace(at, 2, std::to_string(n));
  return name;
}

bool per_expert(std::string_view pattern) {
  const size_t first = pattern.find("{}");
  return first != pattern.npos && pattern.find("{}", first + 2) != pattern.npos;
}

// Names of the modules that a rule stacks into a slot.
std::vector<std::string> modules(const NameRule& rule, const Slot& slot) {
  std::vector<std::string> names;
  const auto patterns = split(rule.pattern);
  const int64_t experts = slot.experts && per_expert(patterns[0]) ? slot.experts : 1;
  for (int64_t e = 0; e < experts; ++e)
    for (std::string_view pattern : patterns) names.push_back(filled(pattern, {slot.layer, e}));
  return names;
}

// All of a tensor. A stack of experts counts as rows.
Piece whole_piece(const StoredTensor& t, bool transposed) {
  const auto& shape = t.entry->shape;
  int64_t elements = 1;
  for (int64_t n : shape) elements *= n;
  const bool flat = shape.size() < 2 || elements == 0;
  const int64_t cols = flat ? 1 : transposed && shape.size() == 2 ? shape[0] : shape.back();
  return {.tensor = &t, .rows = elements / cols, .cols = cols};
}

// Appends expert `index` of those that are cut from the shared expert `wide`.
void append_cut(Source& to, const Source& wide, const Slot& stack, int64_t index) {
  if (stack.slices == Slot::kColumns) {
    for (Piece piece : wide.weights) {
      piece.col = index * stack.in;
      piece.cols = stack.in;
      to.weights.push_back(piece);
    }
    return;
  }
  int64_t row = 0;  // where the part begins among the rows of all pieces
  for (int64_t rows : stack.parts) {
    int64_t at = row + index * rows;
    size_t i = 0;
    while (at >= wide.weights[i].rows) at -= wide.weights[i++].rows;
    Piece piece = wide.weights[i];
    piece.row = at;
    piece.rows = rows;
    to.weights.push_back(piece);
    row += stack.always * rows;
  }
}

class Finder {
 public:
  Finder(const Checkpoint& checkpoint, std::span<const NameRule> rules, const ModelSpec& spec)
      : checkpoint_(checkpoint), rules_(rules), spec_(spec), layout_(settle_layout()) {}

  Source find(const Slot& slot) {
    if (slot.always == 0) return find_stored(slot);
    Slot chosen = slot;
    chosen.experts -= slot.always;
    Source source = find_stored(chosen);
    const Source wide = find_stored(shared_slot(slot));
    if (source.weights.empty() || wide.weights.empty()) return {};  // finish() tells
    for (int64_t i = 0; i < slot.always; ++i) append_cut(source, wide, slot, i);
    return source;
  }
  // Reads nothing: a tied head that is stored all the same is not an error.
  void skip_head() { used_.insert("lm_head.weight"); }

  void finish() {
    if (!missing_.empty())
      fail_load("the checkpoint lacks {} tensors that config.json ({}) asks for: {}",
                missing_.size(), spec_.arch, name_list(missing_, kShown));
    std::vector<std::string> left;
    size_t mtp = 0;
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      if (used_.contains(name) || name.ends_with("rotary_emb.inv_freq")) continue;
      if (name.find("mtp_") != name.npos)
        ++mtp;
      else
        left.push_back(escaped(name));
    }
    if (mtp) spdlog::info("{} tensors of a multi-token prediction module are not used", mtp);
    if (!left.empty())
      fail_load("the checkpoint has {} tensors that {} does not: {}", left.size(), spec_.arch,
                name_list(left, kShown));
  }

 private:
  Source find_stored(const Slot& slot) {
    std::string first_missing;
    for (const NameRule& rule : rules_) {
      if (rule.slot != slot.name || rule.layout != layout_) continue;
      if (auto source = match(rule, slot, &first_missing)) return *source;
    }
    missing_.push_back(first_missing);
    return {};
  }

  Layout settle_layout() const {
    for (const NameRule& rule : rules_)
      if (rule.slot == "embed" && (stored(std::string(rule.pattern), ".weight")))
        return rule.layout;
    return Layout::kTorch;
  }

  const StoredTensor* stored(const std::string& module, std::string_view suffix) const {
    return checkpoint_.find(module + std::string(suffix));
  }

  std::optional<Source> match(const NameRule& rule, const Slot& slot, std::string* first_missing) {
    Source source{.weights = {},
                  .biases = {},
                  .transposed = layout_ == Layout::kPaddle && slot.kind == Slot::kLinear};
    const auto names = modules(rule, slot);
    const bool whole = split(rule.pattern).size() == 1;
    for (size_t i = 0; i < names.size(); ++i) {
      const StoredTensor* weight = stored(names[i], ".weight");
      if (!weight) weight = stored(names[i], "");
      const StoredTensor* bias = slot.bias ? stored(names[i], ".bias") : nullptr;
      if (!weight || (slot.bias && !bias)) {
        if (first_missing->empty()) *first_missing = names[i] + (weight ? ".bias" : ".weight");
        return std::nullopt;
      }
      source.weights.push_back(whole_piece(*weight, source.transposed));
      if (bias) source.biases.push_back(whole_piece(*bias, false));
    }
    for (size_t i = 0; i < source.weights.size(); ++i) {
      const int64_t rows = whole ? slot.out : slot.parts.at(i % slot.parts.size());
      check_weight(*source.weights[i].tensor, slot, rows, source, per_expert(rule.pattern));
      if (slot.bias) check_shape(*source.biases[i].tensor, {rows});
    }
    return source;
  }

  void check_weight(const StoredTensor& t, const Slot& slot, int64_t rows, const Source& source,
                    bool one_expert) {
    if (slot.kind == Slot::kTable) check_vocab(t, rows);
    std::vector<int64_t> want;
    if (slot.experts && !one_expert) want.push_back(slot.experts);
    want.push_back(source.transposed ? slot.in : rows);
    if (slot.kind == Slot::kLinear || slot.kind == Slot::kTable)
      want.push_back(source.transposed ? rows : slot.in);
    check_shape(t, std::move(want));
  }

  void check_vocab(const StoredTensor& t, int64_t rows) const {
    const auto& shape = t.entry->shape;
    if (shape.size() == 2 && shape[0] != rows && shape[1] == spec_.hidden)
      fail_load(
          "tensor \"{}\" has {} rows but config.json says \"vocab_size\" {}; set vocab_size to the "
          "rows of the embedding",
          escaped(t.entry->name), shape[0], rows);
  }

  // Vectors may be stored with leading ones, as ERNIE's correction bias is ([1, experts]).
  void check_shape(const StoredTensor& t, std::vector<int64_t> want) {
    std::vector<int64_t> have = t.entry->shape;
    while (want.size() == 1 && have.size() > 1 && have[0] == 1) have.erase(have.begin());
    if (have != want)
      fail_load("tensor \"{}\" has shape [{}], config.json asks for [{}]", escaped(t.entry->name),
                name_list(t.entry->shape), name_list(want));
    if (!loadable_dtype(t.entry->dtype))
      fail_load("tensor \"{}\" is {}; only F32, F16 and BF16 can be loaded", escaped(t.entry->name),
                t.entry->dtype);
    used_.insert(t.entry->name);
  }

  const Checkpoint& checkpoint_;
  std::span<const NameRule> rules_;
  const ModelSpec& spec_;
  Layout layout_;
  std::set<std::string, std::less<>> used_;
  std::vector<std::string> missing_;
};

}  // namespace

std::vector<Source> find_sources(const Checkpoint& checkpoint, std::span<const NameRule> rules,
                                 std::span<const Slot> slots, const ModelSpec& spec) {
  Finder finder(checkpoint, rules, spec);
  std::vector<Source> sources;
  for (const Slot& slot : slots) {
    if (is_tied_head(slot, spec)) {
      finder.skip_head();
      sources.emplace_back();
    } else {
      sources.push_back(finder.find(slot));
    }
  }
  finder.finish();
  return sources;
}

}  // namespace skiff

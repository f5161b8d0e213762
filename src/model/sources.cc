#include "model/sources.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "base/log.h"
#include "weights/name_list.h"

namespace skiff::model {
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

// Replaces each {} of `pattern` by a number, from the left.
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

// Lists the modules that a rule stacks into a slot.
std::vector<std::string> modules(const NameRule& rule, const Slot& slot) {
  std::vector<std::string> names;
  const auto patterns = split(rule.pattern);
  const int64_t experts = slot.experts && per_expert(patterns[0]) ? slot.experts : 1;
  for (int64_t e = 0; e < experts; ++e)
    for (std::string_view pattern : patterns) names.push_back(filled(pattern, {slot.layer, e}));
  return names;
}

// A piece that is the whole tensor. The experts of a stack count as rows.
Piece whole_piece(const StoredTensor& t, bool transposed) {
  const auto& shape = t.entry->shape;
  int64_t elements = 1;
  for (int64_t n : shape) elements *= n;
  const bool flat = shape.size() < 2 || elements == 0;
  const int64_t cols = flat ? 1 : transposed && shape.size() == 2 ? shape[0] : shape.back();
  return {.tensor = &t, .rows = elements / cols, .cols = cols};
}

// A part of an axis.
struct Range {
  int64_t begin = 0, count = 0;
};

// Returns the blocks that hold these elements of an axis and no others; if one block is the whole
// axis, every part of the axis has that block.
Range blocks_of(Range elements, int64_t axis, int block, const StoredTensor& tensor) {
  if (block == 0) return {0, 1};
  const int64_t end = elements.begin + elements.count;
  if (elements.begin % block || (end % block && end != axis))
    fail_load("tensor \"{}\": elements [{}, {}) are cut out, which are not whole blocks of {}",
              escaped(tensor.entry->name), elements.begin, end, block);
  return {elements.begin / block, (end + block - 1) / block - elements.begin / block};
}

// Appends rows and columns of the weight that piece `i` of `wide` is, with their scales.
void append_part(Source& to, const Source& wide, size_t i, Range rows, Range cols) {
  SKIFF_CHECK(wide.of(Role::kBias).empty());
  const Piece whole = wide.of(Role::kWeight)[i];
  for (const Role role : {Role::kWeight, Role::kScale, Role::kZero}) {
    if (wide.of(role).empty()) continue;
    const StoredTensor& tensor = *wide.of(role)[i].tensor;
    Range down = rows, across = cols;
    if (role != Role::kWeight) {
      down = blocks_of(rows, whole.rows, wide.format.block_out, tensor);
      across = blocks_of(cols, whole.cols, wide.format.block_in, tensor);
    }
    to.of(role).push_back({&tensor, down.begin, down.count, across.begin, across.count});
  }
}

// Appends expert `index` of those that are cut from the shared expert `wide`.
void append_cut(Source& to, const Source& wide, const Slot& stack, int64_t index) {
  const auto& pieces = wide.of(Role::kWeight);
  if (stack.slices == Slot::kColumns) {
    for (size_t i = 0; i < pieces.size(); ++i)
      append_part(to, wide, i, {0, pieces[i].rows}, {index * stack.in, stack.in});
    return;
  }
  int64_t row = 0;  // where the part begins among the rows of all pieces
  for (const int64_t rows : stack.parts) {
    int64_t at = row + index * rows;
    size_t i = 0;
    while (at >= pieces[i].rows) at -= pieces[i++].rows;
    append_part(to, wide, i, {at, rows}, {0, pieces[i].cols});
    row += stack.always * rows;
  }
}

class Finder {
 public:
  Finder(const Checkpoint& checkpoint, std::span<const NameRule> rules,
         std::span<const StoredFormat> formats, const ModelSpec& spec)
      : checkpoint_(checkpoint),
        rules_(rules),
        formats_(formats),
        spec_(spec),
        layout_(settle_layout()) {}

  Source find(const Slot& slot) {
    if (slot.always == 0) return find_stored(slot);
    Slot chosen = slot;
    chosen.experts -= slot.always;
    Source source = find_stored(chosen);
    const Source wide = find_stored(shared_slot(slot));
    if (source.of(Role::kWeight).empty() || wide.of(Role::kWeight).empty())
      return {};  // finish() reports what is missing
    join_formats(source, wide);
    for (int64_t i = 0; i < slot.always; ++i) append_cut(source, wide, slot, i);
    return source;
  }
  // Marks a stored tied head as used without reading it, because storing one is not an error.
  void skip_head() {
    for (const NameRule& rule : rules_) {
      if (rule.slot != "head") continue;
      for (const Role role : {Role::kWeight, Role::kScale, Role::kZero})
        if (const auto* tensor =
                find_tensor(checkpoint_, formats_, std::string(rule.pattern), role))
          used_.insert(tensor->entry->name);
    }
  }

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
      if (rule.slot == "embed" &&
          find_tensor(checkpoint_, formats_, std::string(rule.pattern), Role::kWeight))
        return rule.layout;
    return Layout::kTorch;
  }

  std::optional<Source> match(const NameRule& rule, const Slot& slot, std::string* first_missing) {
    const bool linear = slot.kind == Slot::kLinear;
    std::vector<ModuleTensors> found;
    for (const std::string& name : modules(rule, slot)) {
      found.push_back(find_module(checkpoint_, formats_, name, linear, slot.bias));
      if (found.back().missing.empty()) continue;
      if (first_missing->empty()) *first_missing = found.back().missing;
      return std::nullopt;
    }
    Source source{.transposed = layout_ == Layout::kPaddle && linear};
    const bool whole = split(rule.pattern).size() == 1;
    for (size_t i = 0; i < found.size(); ++i) {
      const size_t part = i % slot.parts.size();
      const ModuleShape shape{.experts = per_expert(rule.pattern) ? 0 : slot.experts,
                              .out = whole ? slot.out : slot.parts[part],
                              .in = slot.in,
                              .vector = slot.kind == Slot::kNorm || slot.kind == Slot::kVector,
                              .transposed = source.transposed};
      if (!found[i].format) refuse_dtype(*found[i].unreadable, readable_dtypes(formats_, linear));
      if (slot.kind == Slot::kTable) check_vocab(*found[i].of(Role::kWeight), shape.out);
      if (!whole && part + 1 < slot.parts.size()) check_joint(found[i], shape);
      add(source, found[i], shape);
    }
    return source;
  }

  void add(Source& to, const ModuleTensors& module, const ModuleShape& shape) {
    Source one{.format = module.weight_format()};
    for (const TensorRule& rule : module.format->tensors) {
      const StoredTensor* tensor = module.of(rule.role);
      if (!tensor) continue;
      check_shape(*tensor, rule.shape(shape, *module.format));
      if (std::ranges::find(rule.dtypes, tensor->entry->dtype) == rule.dtypes.end())
        refuse_dtype(*tensor, rule.dtypes);
      one.of(rule.role).push_back(
          whole_piece(*tensor, shape.transposed && rule.role != Role::kBias));
      used_.insert(tensor->entry->name);
    }
    if (to.of(Role::kWeight).empty())
      to.format = one.format;
    else
      join_formats(to, one);
    for (const Role role : kRoles)
      to.of(role).insert(to.of(role).end(), one.of(role).begin(), one.of(role).end());
  }

  // Weights that are stacked must be alike; plain ones can be converted.
  static void join_formats(Source& to, const Source& more) {
    if (to.format == more.format) return;
    if (to.format.quantized() || more.format.quantized())
      fail_load(
          "tensor \"{}\" is {} and \"{}\" is {}; weights that are multiplied as one must be alike",
          escaped(to.of(Role::kWeight)[0].tensor->entry->name), describe(to.format),
          escaped(more.of(Role::kWeight)[0].tensor->entry->name), describe(more.format));
    to.format = {.dtype = DType::kF32};
  }

  // Scales of weights that are stacked are stacked themselves: no block may reach across.
  static void check_joint(const ModuleTensors& module, const ModuleShape& shape) {
    const int block = module.format->block_out;
    if (!module.format->quantized() || (block > 0 && shape.out % block == 0)) return;
    fail_load("tensor \"{}\" has {} rows, which are not whole blocks of {}; other rows follow",
              escaped(module.of(Role::kWeight)->entry->name), shape.out,
              block ? std::to_string(block) : "all");
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
  static void check_shape(const StoredTensor& t, const std::vector<int64_t>& want) {
    std::vector<int64_t> have = t.entry->shape;
    while (want.size() == 1 && have.size() > 1 && have[0] == 1) have.erase(have.begin());
    if (have != want)
      fail_load("tensor \"{}\" has shape [{}], config.json asks for [{}]", escaped(t.entry->name),
                name_list(t.entry->shape), name_list(want));
  }

  [[noreturn]] static void refuse_dtype(const StoredTensor& t,
                                        const std::vector<std::string_view>& readable) {
    fail_load("tensor \"{}\" is {}; only {} can be loaded", escaped(t.entry->name), t.entry->dtype,
              name_list(readable));
  }

  const Checkpoint& checkpoint_;
  std::span<const NameRule> rules_;
  std::span<const StoredFormat> formats_;
  const ModelSpec& spec_;
  Layout layout_;
  std::set<std::string, std::less<>> used_;
  std::vector<std::string> missing_;
};

}  // namespace

std::vector<Source> find_sources(const Checkpoint& checkpoint, std::span<const NameRule> rules,
                                 std::span<const StoredFormat> formats, std::span<const Slot> slots,
                                 const ModelSpec& spec) {
  Finder finder(checkpoint, rules, formats, spec);
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

}  // namespace skiff::model

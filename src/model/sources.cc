#include "model/sources.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "base/load_error.h"
#include "base/log.h"
#include "model/eagle.h"
#include "model/gguf_config.h"
#include "model/join_formats.h"
#include "model/kv_scales.h"
#include "model/stored_numbers.h"
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
std::vector<std::string> modules(const NameRule& rule, const Slot& slot, int first_layer) {
  std::vector<std::string> names;
  const auto patterns = split(rule.pattern);
  const int64_t experts = slot.experts && per_expert(patterns[0]) ? slot.experts : 1;
  const int layer = first_layer + std::max(slot.layer, 0);
  for (int64_t e = 0; e < experts; ++e)
    for (std::string_view pattern : patterns)
      names.push_back(filled(stored_pattern(rule, pattern), {layer, e}));
  return names;
}

class Finder {
 public:
  Finder(const Checkpoint& checkpoint, std::span<const NameRule> rules,
         const Quantization& quantization, const ModelSpec& spec, DType act)
      : checkpoint_(checkpoint),
        rules_(rules),
        quantization_(quantization),
        spec_(spec),
        act_(act) {
    settle_layout();
  }

  Source find(const Slot& slot, const SlotCut* cut) {
    Source source = find_parts(cut ? cut->whole : slot);
    if (source.parts.empty()) return source;  // finish() reports what is missing
    if (cut) cut_parts(source, *cut, slot.in);
    join_formats(source, slot, act_);
    return source;
  }
  // Marks a stored head as used without reading it, because storing one is not an error where it is
  // tied or where another one is used.
  void skip_head(std::string_view slot = "head") {
    for (const NameRule& rule : rules_) {
      if (rule.slot != slot) continue;
      const std::string module(rule.pattern);
      for (const StoredTensor* tensor :
           find_tensors(checkpoint_, quantization_.formats_of(module), module))
        used_.insert(tensor->entry->name);
    }
  }

  void finish(Remarks remarks) {
    if (!missing_.empty())
      fail_load("the checkpoint lacks {} tensors that {} ({}) asks for: {}{}", missing_.size(),
                config_name(), spec_.arch, name_list(missing_, kShown), hint());
    std::vector<std::string> left;
    size_t mtp = 0, unused = 0;
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      if (used_.contains(name) || has_use_elsewhere(name)) continue;
      if (spec_.joins && !is_of_module(name)) continue;  // the served model's
      if (!spec_.joins && (name.find("mtp_") != name.npos || is_of_extra_layer(name)))
        ++mtp;
      else if (std::ranges::any_of(quantization_.unused,
                                   [&](const auto& end) { return name.ends_with(end); }))
        ++unused;
      else if (has_no_effect(tensor))
        continue;
      else
        left.push_back(escaped(name));
    }
    if (!left.empty())
      fail_load("the checkpoint has {} tensors that {} does not: {}", left.size(), spec_.arch,
                name_list(left, kShown));
    if (remarks == Remarks::kLogged) log_remarks(mtp, unused);
  }

 private:
  // The file that says how large the model is, for errors.
  std::string_view config_name() const {
    return quantization_.method == "gguf" ? std::string_view(quantization_.where) : "config.json";
  }

  // Frequencies of rope follow from the configuration, or are read with it; scales of the KV cache
  // are read by kv_scales.cc.
  static bool has_use_elsewhere(std::string_view name) {
    return name.ends_with("rotary_emb.inv_freq") || name == kGgufRopeFactors || is_kv_scale(name);
  }

  bool has_no_effect(const StoredTensor& tensor) const {
    const std::string& name = tensor.entry->name;
    const std::string& dtype = tensor.entry->dtype;
    if (std::ranges::none_of(quantization_.zeros,
                             [&](const auto& end) { return name.ends_with(end); }))
      return false;
    if (dtype != "F32" && dtype != "F16" && dtype != "BF16") return false;
    const int64_t count = std::ssize(tensor.bytes) * 8 / safetensors_bits(dtype);
    for (int64_t i = 0; i < count; ++i)
      if (stored_float(tensor, i) != 0) return false;
    return true;
  }

  // Layers behind those of the spec predict tokens further ahead; nothing here computes them.
  bool is_of_extra_layer(std::string_view name) const {
    for (int i = 0; i < spec_.extra_layers; ++i)
      if (name.starts_with(filled("model.layers.{}.", {std::ssize(spec_.layers) + i}))) return true;
    return false;
  }

  // Copies of the embedding and the head equal those that are shared. Which tokens the rows of a
  // head of EAGLE 3 stand for is read apart (model/eagle.h).
  bool is_of_module(std::string_view name) const {
    if (spec_.join == ModelSpec::kPlain)
      return !name.ends_with("embed_tokens.weight") && !name.ends_with("lm_head.weight");
    if (spec_.join == ModelSpec::kBeside)
      return !name.ends_with("embed_tokens.weight") && name != kDraftIds && name != kIsDrafted;
    if (name.find(".embed_tokens.") != name.npos || name.find(".shared_head.head.") != name.npos)
      return false;
    if (spec_.first_layer == 0) return name.find("mtp_") != name.npos;
    return name.starts_with(filled("model.layers.{}.", {spec_.first_layer}));
  }

  void log_remarks(size_t mtp, size_t unused) const {
    if (mtp) spdlog::info("{} tensors of multi-token prediction (MTP) are not used", mtp);
    if (unused)
      spdlog::info("{} tensors are not used: {}", unused, name_list(quantization_.unused));
    if (!plain_.empty())
      spdlog::info("{} weights are stored plain although {} lists them: {}", plain_.size(),
                   quantization_.where, name_list(plain_, kShown));
  }

  // Leaves of the parts what lies in the cut.
  static void cut_parts(Source& source, const SlotCut& cut, int64_t cols) {
    std::vector<Part> parts;
    for (const SlotCut::Rows& run : cut.rows)
      for_each_part(source, run.first, run.count, [&](const auto& module, Region region, int64_t) {
        region.col += cut.col;
        region.cols = cols;
        parts.push_back({static_cast<size_t>(&module - source.modules.data()), region});
      });
    source.parts = std::move(parts);
  }

  Source find_parts(const Slot& slot) {
    if (slot.heads) return find_heads(slot);
    if (slot.always == 0) return find_stored(slot);
    Slot chosen = slot;
    chosen.experts -= slot.always;
    Source source = find_stored(chosen);
    const Source wide = find_stored(shared_slot(slot));
    if (source.parts.empty() || wide.parts.empty()) return {};
    const size_t first = source.modules.size();
    source.modules.insert(source.modules.end(), wide.modules.begin(), wide.modules.end());
    for (int64_t i = 0; i < slot.always; ++i) append_cut(source, wide, first, slot, i);
    return source;
  }

  Source find_heads(const Slot& slot) {
    // Some checkpoints have the matrices of heads as they are multiplied.
    Missing missing;
    for (const NameRule& rule : rules_)
      if (rule.slot == slot.name && rule.layout == layout_)
        if (auto source = match(rule, slot, &missing)) return *source;
    const Slot::HeadCut& cut = *slot.heads;
    Source source = find_stored(cut_slot(slot));
    if (source.parts.empty()) return source;
    source.parts.clear();
    source.transposed = cut.transposed;
    for (int64_t h = 0; h < slot.experts; ++h) {
      const int64_t first = h * cut.each + cut.first;
      source.parts.push_back({0, cut.transposed ? Region{0, slot.out, first, slot.in}
                                                : Region{first, slot.out, 0, slot.in}});
    }
    return source;
  }

  // The name of a tensor that is missing; of several names that a slot may have, one of which the
  // checkpoint has other tensors.
  struct Missing {
    std::string name;
    bool partly = false;
  };

  Source find_stored(const Slot& slot) {
    Missing missing;
    for (const NameRule& rule : rules_) {
      if (rule.slot != slot.name || !applies(rule)) continue;
      if (auto source = match(rule, slot, &missing)) return *source;
    }
    missing_.push_back(missing.name);
    return {};
  }

  // Appends expert `index` of those that are cut from the shared expert `wide`, whose modules begin
  // at `first`.
  static void append_cut(Source& to, const Source& wide, size_t first, const Slot& stack,
                         int64_t index) {
    if (stack.slices == Slot::kColumns) {
      for (const Part& part : wide.parts)
        to.parts.push_back(
            {first + part.module, {0, part.region.rows, index * stack.in, stack.in}});
      return;
    }
    int64_t row = 0;  // where the part begins among the rows of all parts
    for (const int64_t rows : stack.parts) {
      int64_t at = row + index * rows;
      size_t i = 0;
      while (at >= wide.parts[i].region.rows) at -= wide.parts[i++].region.rows;
      to.parts.push_back({first + wide.parts[i].module, {at, rows, 0, wide.parts[i].region.cols}});
      row += stack.always * rows;
    }
  }

  // Files of Paddle name their tensors in several ways, but each in one.
  bool applies(const NameRule& rule) const {
    return rule.layout == layout_ && (layout_ != Layout::kPaddle || rule.base == base_);
  }

  void settle_layout() {
    for (const NameRule& rule : rules_) {
      const std::string module = stored_pattern(rule, rule.pattern);
      if (rule.slot != (spec_.joins ? "join" : "embed")) continue;
      for (const StoredFormat* format : quantization_.formats_of_table(module))
        for (const std::string_view suffix : format->rule(Role::kWeight)->suffixes)
          if (checkpoint_.find(module + std::string(suffix))) {
            layout_ = rule.layout;
            base_ = rule.base;
            return;
          }
    }
  }

  FormatList formats_of(const Slot& slot, const std::string& module) const {
    if (slot.kind == Slot::kLinear) return quantization_.formats_of(module);
    if (slot.kind == Slot::kTable) return quantization_.formats_of_table(module);
    return {&quantization_.plain()};
  }

  std::optional<Source> match(const NameRule& rule, const Slot& slot, Missing* missing) {
    std::vector<ModuleTensors> found;
    const std::vector<std::string> names = modules(rule, slot, spec_.first_layer);
    for (const std::string& name : names) {
      found.push_back(find_module(checkpoint_, formats_of(slot, name), name, slot.bias));
      if (found.back().missing.empty()) continue;
      const bool partly = !find_tensors(checkpoint_, formats_of(slot, name), name).empty();
      if (missing->name.empty() || (partly && !missing->partly))
        *missing = {found.back().missing, partly};
      return std::nullopt;
    }
    Source source;
    const auto spellings = split(rule.pattern);
    const size_t patterns = spellings.size();
    for (size_t i = 0; i < found.size(); ++i) {
      const ModuleShape shape{
          .experts = per_expert(spellings[0]) ? 0 : slot.experts,
          .out = patterns == 1 ? slot.out : slot.parts[i % slot.parts.size()],
          .in = slot.in,
          .vector = slot.kind == Slot::kNorm || slot.kind == Slot::kVector,
          .transposed = layout_ == Layout::kPaddle && slot.kind == Slot::kLinear};
      if (!found[i].format)
        refuse_dtype(*found[i].unreadable, readable_dtypes(formats_of(slot, names[i])));
      if (slot.kind == Slot::kTable) check_vocab(*found[i].of(Role::kWeight), shape.out);
      source.modules.push_back(checked(found[i], shape));
      note_plain(slot, names[i], found[i]);
    }
    add_parts(source, patterns);
    return source;
  }

  // The parts are the modules, one after the other; stacks that are stored apart, as gate and up,
  // take turns for each expert.
  static void add_parts(Source& source, size_t patterns) {
    const ModuleShape& first = source.modules[0].shape;
    if (first.experts == 0 || patterns == 1) {
      for (size_t i = 0; i < source.modules.size(); ++i) {
        const ModuleShape& shape = source.modules[i].shape;
        source.parts.push_back({i, {0, shape.rows(), 0, shape.in}});
      }
      return;
    }
    for (int64_t e = 0; e < first.experts; ++e)
      for (size_t i = 0; i < source.modules.size(); ++i) {
        const ModuleShape& shape = source.modules[i].shape;
        source.parts.push_back({i, {e * shape.out, shape.out, 0, shape.in}});
      }
  }

  StoredModule checked(const ModuleTensors& found, const ModuleShape& shape) {
    StoredModule module{.format = found.format,
                        .tensors = found.tensors,
                        .shape = shape,
                        .order = {},
                        .numbers = {}};
    if (shape.experts && !found.format->stacks)
      fail_load("tensor \"{}\" is a stack of experts; in {} each expert has tensors of its own",
                escaped(found.of(Role::kWeight)->entry->name), found.format->name);
    for (const TensorRule& rule : found.format->tensors) {
      const StoredTensor* tensor = found.of(rule.role);
      if (!tensor) continue;
      if (rule.shape) check_shape(*tensor, rule.shape(shape, *found.format));
      if (std::ranges::find(rule.dtypes, tensor->entry->dtype) == rule.dtypes.end())
        refuse_dtype(*tensor, rule.dtypes);
      used_.insert(tensor->entry->name);
    }
    if (found.format->quantized() && found.format->unpacking->settle)
      found.format->unpacking->settle(module);
    return module;
  }

  void note_plain(const Slot& slot, const std::string& name, const ModuleTensors& found) {
    const bool listed = slot.kind == Slot::kLinear && !slot.wide && slot.name != "head" &&
                        quantization_.formats_of(name).size() > 1;
    if (listed && !found.format->quantized()) plain_.push_back(escaped(name));
  }

  void check_vocab(const StoredTensor& t, int64_t rows) const {
    const auto& shape = t.entry->shape;
    if (shape.size() == 2 && shape[0] != rows && shape[1] == spec_.hidden)
      fail_load(
          "tensor \"{}\" has {} rows but {} says \"vocab_size\" {}; set vocab_size to the rows of "
          "the embedding",
          escaped(t.entry->name), shape[0], config_name(), rows);
  }

  // Vectors may be stored with leading ones, as ERNIE's correction bias is ([1, experts]), and a
  // single number without a dimension.
  void check_shape(const StoredTensor& t, const std::vector<int64_t>& want) const {
    std::vector<int64_t> have = t.entry->shape;
    while (want.size() == 1 && have.size() > 1 && have[0] == 1) have.erase(have.begin());
    if (have.empty() && want == std::vector<int64_t>{1}) return;
    if (have != want)
      fail_load("tensor \"{}\" has shape [{}], {} asks for [{}]", escaped(t.entry->name),
                name_list(t.entry->shape), config_name(), name_list(want));
  }

  [[noreturn]] void refuse_dtype(const StoredTensor& t,
                                 const std::vector<std::string_view>& readable) const {
    const bool unsaid = quantization_.formats.empty() && safetensors_bits(t.entry->dtype) == 8;
    fail_load("tensor \"{}\" is {}; only {} can be loaded{}", escaped(t.entry->name),
              t.entry->dtype, name_list(readable),
              unsaid ? "; config.json has no \"quantization_config\" that says what it means" : "");
  }

  // What explains a plain weight that is missing: quantized tensors in its place.
  std::string hint() const {
    constexpr std::string_view kPlain = ".weight";
    for (const std::string& name : missing_) {
      if (!name.ends_with(kPlain)) continue;
      const std::string module = name.substr(0, name.size() - kPlain.size());
      for (const std::string suffix : {".qweight", ".weight_packed", ".quant_weight"})
        if (checkpoint_.find(module + suffix))
          return fmt::format(
              "; it has {}, but {}", escaped(module + suffix),
              quantization_.formats.empty()
                  ? std::string(
                        "config.json has no \"quantization_config\" that says what it means")
                  : fmt::format("{} says otherwise", quantization_.where));
    }
    return {};
  }

  const Checkpoint& checkpoint_;
  std::span<const NameRule> rules_;
  const Quantization& quantization_;
  const ModelSpec& spec_;
  const DType act_;
  Layout layout_ = Layout::kTorch;
  std::string_view base_;
  std::set<std::string, std::less<>> used_;
  std::vector<std::string> missing_, plain_;
};

}  // namespace

std::vector<Source> find_sources(const Checkpoint& checkpoint, std::span<const NameRule> rules,
                                 const Quantization& quantization, std::span<const Slot> slots,
                                 const ModelSpec& spec, DType act, Remarks remarks,
                                 std::span<const SlotCut> cuts) {
  Finder finder(checkpoint, rules, quantization, spec, act);
  std::vector<Source> sources;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (is_tied_head(slots[i], spec)) {
      finder.skip_head();
      sources.emplace_back();
    } else {
      sources.push_back(finder.find(slots[i], cuts.empty() ? nullptr : &cuts[i]));
    }
  }
  if (spec.head != HeadKind::kVocab) finder.skip_head();
  if (spec.head == HeadKind::kNone)
    for (const std::string_view slot : {"score", "score_inner"}) finder.skip_head(slot);
  finder.finish(remarks);
  return sources;
}

}  // namespace skiff::model

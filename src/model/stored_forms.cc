#include "model/stored_forms.h"

#include <algorithm>
#include <filesystem>

#include "arch/shard.h"
#include "base/load_error.h"
#include "gguf/gguf_files.h"
#include "model/registry.h"
#include "model/sources.h"

namespace skiff::model {
namespace {

namespace fs = std::filesystem;

std::string first_name(std::span<const NameRule> rules, const Slot& slot) {
  for (const NameRule& rule : rules) {
    if (rule.slot != slot.name) continue;
    std::string name(rule.pattern.substr(0, rule.pattern.find('|')));
    for (const int number : {slot.layer, 0})
      if (const size_t at = name.find("{}"); at != name.npos)
        name.replace(at, 2, std::to_string(number));
    return name;
  }
  return {};
}

// What the configuration says of a weight. Writers leave heads plain even where no key says so.
StoredForm configured(const Quantization& quantization, std::span<const NameRule> rules,
                      const Slot& slot) {
  const bool multiplied = slot.kind == Slot::kLinear && !slot.wide && !slot.plain;
  if (!multiplied || slot.layer_kind == LayerKind::kHead) return {};
  const FormatList formats = quantization.formats_of(first_name(rules, slot));
  const StoredFormat& first = *formats.front();
  if (!first.quantized()) return {};
  if (!first.values.quantized()) return {.lost = first.name};
  return {.format = first.values};
}

bool scales_tokens(const WeightFormat& format) {
  return format.quantized() && format.input && format.input->scales == InputFormat::kToken;
}

}  // namespace

bool has_weight_files(const std::string& dir) {
  if (!gguf_file_of(dir).empty()) return true;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".safetensors" ||
        it->path().filename() == "model.safetensors.index.json")
      return true;
  return false;
}

std::vector<StoredForm> stored_forms(const std::string& dir, const ModelConfig& config,
                                     const RankOf& part) {
  const Quantization& quantization = config.quantization;
  if (quantization.method.empty()) return {};
  const auto local = spec_of(config.spec, part);
  if (!local) fail_load("{}", local.error().what);
  const std::vector<Slot> slots = slots_of(*local, part.size);
  const std::vector<SlotCut> cuts = cut_slots(config.spec, slots, part);
  const std::vector<NameRule> rules = find_family(config.spec.arch)->names();
  std::vector<StoredForm> forms;
  if (!has_weight_files(dir)) {
    for (const Slot& slot : slots)
      forms.push_back(is_tied_head(slot, config.spec) ? StoredForm{}
                                                      : configured(quantization, rules, slot));
    return forms;
  }
  const Checkpoint checkpoint(dir);
  try {
    for (const Source& source : find_sources(checkpoint, rules, quantization, slots, config.spec,
                                             DType::kF32, Remarks::kLeftOut, cuts))
      forms.push_back(
          {.format = source.format, .order = !source.order.empty(), .lost = source.lost});
  } catch (const LoadError& e) {
    fail_load("{}: {}", dir, e.what());
  }
  return forms;
}

bool shared_experts_differ(const std::string& dir, const ModelConfig& config) {
  int most = 0;
  for (const Layer& layer : config.spec.layers)
    if (const auto* moe = std::get_if<Moe>(&layer.ffn)) most = std::max(most, moe->router.always);
  const bool merged = most > 0, several = most > 1;
  if (!merged || config.quantization.method.empty()) return false;
  ModelConfig apart = config;
  separate_shared_experts(apart.spec);
  const std::vector<Slot> slots = slots_of(apart.spec);
  const std::vector<StoredForm> forms = stored_forms(dir, apart);
  // The slots of a layer have the routed experts' two weights first, then the shared expert's two.
  const auto plain = [](WeightFormat format) {
    return format.quantized() ? format : WeightFormat{};
  };
  for (size_t i = 0; i + 2 < slots.size(); ++i)
    if (slots[i].layer_kind == LayerKind::kExperts &&
        (plain(forms[i].format) != plain(forms[i + 2].format) ||
         (several && scales_tokens(forms[i].format))))
      return true;
  return false;
}

}  // namespace skiff::model

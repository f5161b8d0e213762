#include "quantize/model_file.h"

#include <algorithm>
#include <filesystem>

#include "arch/shard.h"
#include "base/load_error.h"
#include "base/log.h"
#include "model/registry.h"
#include "model/stored_numbers.h"
#include "model/unpack.h"
#include "tensor/convert.h"

namespace skiff::quantize {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeight = ".weight";

std::string module_of(const StoredTensor& tensor) {
  std::string name = tensor.entry->name;
  if (name.ends_with(kWeight)) name.resize(name.size() - kWeight.size());
  return name;
}

// The names that experts of a stack have where each is stored apart.
std::vector<std::string> expert_names(const std::string& stack, int64_t expert, size_t parts) {
  const size_t dot = stack.rfind('.');
  const std::string prefix = fmt::format("{}.{}.", stack.substr(0, dot), expert);
  if (parts == 2) return {prefix + "gate_proj", prefix + "up_proj"};
  return {prefix + stack.substr(dot + 1)};
}

// Whether all weights of the checkpoint that are no floats of 16 or 32 bits are eight-bit floats in
// blocks.
bool in_blocks_of_floats(const model::Quantization& quantization) {
  return quantization.method == "fp8" &&
         std::ranges::all_of(quantization.formats, [](const model::StoredFormat& format) {
           return format.values.block_out > 1;
         });
}

template <class T>
void convert_from(const std::byte* from, std::vector<float>& to) {
  for (size_t i = 0; i < to.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    to[i] = to_float(value);
  }
}

}  // namespace

const model::Slot* PlainSlot::stack(std::string_view name) const {
  const auto found = std::ranges::find(stacks, name, &model::Slot::name);
  return found == stacks.end() ? nullptr : &*found;
}

const LinearSlot* LayerMap::linear(std::string_view name) const {
  const auto found = std::ranges::find_if(
      linears, [&](const LinearSlot& linear) { return linear.slot.name == name; });
  return found == linears.end() ? nullptr : &*found;
}

const PlainSlot* LayerMap::plain(std::string_view name) const {
  const auto found =
      std::ranges::find_if(plains, [&](const PlainSlot& plain) { return plain.slot.name == name; });
  return found == plains.end() ? nullptr : &*found;
}

std::vector<float> read_floats(const StoredTensor& tensor, int64_t first, int64_t count) {
  const auto dtype = dtype_of_safetensors(tensor.entry->dtype);
  SKIFF_CHECK(dtype.has_value(), "floats in {}", tensor.entry->dtype);
  std::vector<float> values(static_cast<size_t>(count));
  const std::byte* from = tensor.bytes.data() + byte_size(*dtype, first);
  switch (*dtype) {
    case DType::kF32:
      convert_from<float>(from, values);
      break;
    case DType::kF16:
      convert_from<F16>(from, values);
      break;
    case DType::kBF16:
      convert_from<BF16>(from, values);
      break;
    default:
      fail_load("tensor \"{}\" is {}; only floats of 16 and 32 bits are quantized",
                escaped(tensor.entry->name), tensor.entry->dtype);
  }
  return values;
}

std::vector<float> read_floats(const StoredTensor& tensor) {
  int64_t count = 1;
  for (const int64_t size : tensor.entry->shape) count *= size;
  return read_floats(tensor, 0, count);
}

std::vector<float> read_rows(const model::StoredModule& module, int64_t first, int64_t count) {
  const int64_t in = module.shape.in;
  if (!module.format->quantized())
    return read_floats(*module.of(model::Role::kWeight), first * in, count * in);
  std::vector<float> values(static_cast<size_t>(count * in));
  model::widen(module, {first, count, 0, in}, values.data());
  return values;
}

ModelFile::ModelFile(const std::string& dir) : dir_(dir), config_(model::read_model_config(dir)) {
  if (!fs::is_directory(dir) || !fs::exists(fs::path(dir) / "config.json"))
    fail_load("{}: only folders with config.json and safetensors files are quantized, not GGUF",
              dir);
  if (quantized() && !in_blocks_of_floats(config_.quantization))
    fail_load(
        "{}: the model is quantized already ({}: {}); rounding it again would lose twice, so start "
        "from its 16-bit checkpoint",
        dir, config_.quantization.method, config_.quantization.about);
  checkpoint_.emplace(dir);
  // A wide shared expert is one weight, whose inputs are rounded together.
  separate_shared_experts(config_.spec);
  slots_ = model::slots_of(spec());
  const model::Family* family = model::find_family(spec().arch);
  SKIFF_CHECK(family, "spec of unknown architecture {}", spec().arch);
  const auto rules = family->names();
  try {
    sources_ =
        model::find_sources(*checkpoint_, rules, config_.quantization, slots_, spec(), DType::kF32);
  } catch (const LoadError& e) {
    fail_load("{}: {}", dir, e.what());
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    for (const model::StoredModule& module : sources_[i].modules)
      if (module.shape.transposed)
        fail_load(
            "{}: tensor \"{}\" has Paddle's layout, [in, out]; quantize the checkpoint in "
            "torch's layout",
            dir, escaped(module.of(model::Role::kWeight)->entry->name));
    if (slots_[i].layer >= 0) continue;
    const StoredTensor* tensor =
        sources_[i].modules.empty() ? nullptr : sources_[i].modules[0].of(model::Role::kWeight);
    if (slots_[i].name == "embed") embedding_ = tensor;
    if (slots_[i].name == "norm") norm_ = tensor;
    if (slots_[i].name == "head") head_ = tensor;
  }
  if (!head_) head_ = embedding_;
}

LayerMap ModelFile::layer(int index) const {
  LayerMap map{.layer = index, .units = {}, .linears = {}, .plains = {}};
  for (size_t i = 0; i < slots_.size(); ++i) {
    const model::Slot& slot = slots_[i];
    if (slot.layer != index) continue;
    if (slot.heads)
      add_stack(map, slot, sources_[i]);
    else if (slot.kind == model::Slot::kLinear && !slot.wide)
      add_linear(map, slot, sources_[i]);
    else
      map.plains.push_back(
          {slot, sources_[i].modules[0].of(model::Role::kWeight), &sources_[i].modules[0], {}});
  }
  return map;
}

model::StoredModule ModelFile::module_beside(const StoredTensor& weight) const {
  const std::string name = module_of(weight);
  const model::ModuleTensors found =
      model::find_module(*checkpoint_, config_.quantization.formats_of(name), name, false);
  if (!found.format || !found.format->quantized())
    fail_load("{}: tensor \"{}\" has 8-bit floats without scales", dir_,
              escaped(weight.entry->name));
  const std::vector<int64_t>& shape = weight.entry->shape;
  return {.format = found.format,
          .tensors = found.tensors,
          .shape = {.out = shape.at(0), .in = shape.at(1)}};
}

// The stacks of one stored weight become one plain slot.
void ModelFile::add_stack(LayerMap& map, const model::Slot& slot, const model::Source& source) {
  const StoredTensor* tensor = source.modules[0].of(model::Role::kWeight);
  const auto known = std::ranges::find(map.plains, tensor, &PlainSlot::tensor);
  if (known == map.plains.end())
    map.plains.push_back({model::cut_slot(slot), tensor, &source.modules[0], {slot}});
  else
    known->stacks.push_back(slot);
}

void ModelFile::add_linear(LayerMap& map, const model::Slot& slot,
                           const model::Source& source) const {
  LinearSlot linear{.slot = slot, .pieces = {}};
  std::vector<size_t> first_unit;  // where each module's units begin
  for (const model::StoredModule& module : source.modules) {
    first_unit.push_back(map.units.size());
    const StoredTensor* tensor = module.of(model::Role::kWeight);
    if (module.shape.experts == 0) {
      map.units.push_back({.name = module_of(*tensor),
                           .out = module.shape.out,
                           .in = module.shape.in,
                           .tensor = tensor,
                           .bias = module.of(model::Role::kBias),
                           .module = &module});
      continue;
    }
    int64_t row = 0;
    for (int64_t e = 0; e < module.shape.experts; ++e) {
      const auto names = expert_names(module_of(*tensor), e, slot.parts.size());
      for (size_t p = 0; p < names.size(); ++p) {
        map.units.push_back({.name = names[p],
                             .out = slot.parts[p],
                             .in = module.shape.in,
                             .tensor = tensor,
                             .first_row = row,
                             .stacked = true,
                             .module = &module});
        row += slot.parts[p];
      }
    }
  }
  for (const model::Part& part : source.parts) {
    const model::Region& region = part.region;
    size_t unit = first_unit[part.module];
    if (source.module_of(part).shape.experts == 0) {
      linear.pieces.push_back({unit, region.row, region.rows, region.col, region.cols});
      continue;
    }
    for (int64_t row = 0; row < region.rows; row += map.units[unit++].out)
      linear.pieces.push_back({unit, 0, map.units[unit].out, 0, map.units[unit].in});
  }
  map.linears.push_back(std::move(linear));
}

}  // namespace skiff::quantize

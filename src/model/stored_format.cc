#include "model/stored_format.h"

#include <algorithm>

namespace skiff::model {

StoredFormat plain_format();

namespace {

constexpr StoredFormat (*kFormats[])() = {
    plain_format,
};

// Returns [experts, out, in] without the axes that the module lacks, transposed if it is stored so.
std::vector<int64_t> shape_of(const ModuleShape& module, int64_t out, int64_t in) {
  std::vector<int64_t> shape;
  if (module.experts) shape.push_back(module.experts);
  shape.push_back(module.transposed ? in : out);
  shape.push_back(module.transposed ? out : in);
  return shape;
}

int64_t blocks(int64_t elements, int block) {
  return block == 0 ? 1 : (elements + block - 1) / block;
}

const StoredTensor* find_tensor(const Checkpoint& checkpoint, const TensorRule& rule,
                                const std::string& module) {
  for (const std::string_view suffix : rule.suffixes)
    if (const StoredTensor* tensor = checkpoint.find(module + std::string(suffix))) return tensor;
  return nullptr;
}

bool reads(const TensorRule& rule, const StoredTensor& tensor) {
  return std::ranges::find(rule.dtypes, tensor.entry->dtype) != rule.dtypes.end();
}

// Finds the tensors that `format` requires; `missing` names the first one that is absent.
ModuleTensors collect(const Checkpoint& checkpoint, const StoredFormat& format,
                      const std::string& module, bool bias) {
  SKIFF_CHECK(!bias || format.rule(Role::kBias), "the format {} has no biases", format.name);
  ModuleTensors found{.format = &format};
  for (const TensorRule& rule : format.tensors) {
    if (rule.role == Role::kBias && !bias) continue;
    const StoredTensor* tensor = find_tensor(checkpoint, rule, module);
    found.tensors[static_cast<size_t>(rule.role)] = tensor;
    if (!tensor && found.missing.empty())
      found.missing = module + std::string(rule.suffixes.front());
  }
  return found;
}

}  // namespace

const TensorRule* StoredFormat::rule(Role role) const {
  const auto found = std::ranges::find(tensors, role, &TensorRule::role);
  return found == tensors.end() ? nullptr : &*found;
}

std::vector<int64_t> shape_of_matrix(const ModuleShape& module, const StoredFormat&) {
  if (module.vector) return {module.out};
  return shape_of(module, module.out, module.in);
}

std::vector<int64_t> shape_of_blocks(const ModuleShape& module, const StoredFormat& format) {
  return shape_of(module, blocks(module.out, format.block_out), blocks(module.in, format.block_in));
}

std::vector<int64_t> shape_of_outputs(const ModuleShape& module, const StoredFormat&) {
  if (module.experts) return {module.experts, module.out};
  return {module.out};
}

std::vector<StoredFormat> stored_formats() {
  std::vector<StoredFormat> formats;
  for (const auto& format : kFormats) formats.push_back(format());
  return formats;
}

WeightFormat ModuleTensors::weight_format() const {
  const auto dtype_of = [&](Role role) -> std::optional<DType> {
    if (!of(role)) return std::nullopt;
    const std::optional<DType> packed = format->rule(role)->packed;
    return packed ? packed : dtype_of_safetensors(of(role)->entry->dtype);
  };
  const std::optional<DType> dtype = dtype_of(Role::kWeight);
  SKIFF_CHECK(dtype, "the format {} reads {}", format->name, of(Role::kWeight)->entry->dtype);
  if (!format->quantized()) return {.dtype = *dtype};
  return {.dtype = *dtype,
          .block_out = format->block_out,
          .block_in = format->block_in,
          .scale = dtype_of(Role::kScale),
          .zero = dtype_of(Role::kZero)};
}

ModuleTensors find_module(const Checkpoint& checkpoint, std::span<const StoredFormat> formats,
                          const std::string& module, bool linear, bool bias) {
  ModuleTensors incomplete;  // result for the first format that reads the weight
  const StoredTensor* unreadable = nullptr;
  for (const StoredFormat& format : formats) {
    if (format.quantized() && !linear) continue;
    const TensorRule& rule = *format.rule(Role::kWeight);
    const StoredTensor* weight = find_tensor(checkpoint, rule, module);
    if (weight && !reads(rule, *weight)) {
      if (!unreadable) unreadable = weight;
      continue;
    }
    ModuleTensors found = collect(checkpoint, format, module, bias);
    if (found.missing.empty()) return found;
    found.format = nullptr;
    if (incomplete.missing.empty() || (weight && !incomplete.of(Role::kWeight)))
      incomplete = std::move(found);
  }
  if (unreadable && !incomplete.of(Role::kWeight)) {
    incomplete = {};
    incomplete.unreadable = unreadable;
  }
  return incomplete;
}

const StoredTensor* find_tensor(const Checkpoint& checkpoint, std::span<const StoredFormat> formats,
                                const std::string& module, Role role) {
  for (const StoredFormat& format : formats)
    if (const TensorRule* rule = format.rule(role))
      if (const StoredTensor* tensor = find_tensor(checkpoint, *rule, module)) return tensor;
  return nullptr;
}

std::vector<std::string_view> readable_dtypes(std::span<const StoredFormat> formats, bool linear) {
  std::vector<std::string_view> dtypes;
  for (const StoredFormat& format : formats) {
    if (format.quantized() && !linear) continue;
    for (const std::string_view dtype : format.rule(Role::kWeight)->dtypes)
      if (std::ranges::find(dtypes, dtype) == dtypes.end()) dtypes.push_back(dtype);
  }
  return dtypes;
}

}  // namespace skiff::model

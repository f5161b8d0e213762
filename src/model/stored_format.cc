#include "model/stored_format.h"

#include <algorithm>

namespace skiff::model {
namespace {

// Returns [experts, out, in] without the axes that the module lacks, transposed if it is stored so.
std::vector<int64_t> shape_of(const ModuleShape& module, int64_t out, int64_t in) {
  std::vector<int64_t> shape;
  if (module.experts) shape.push_back(module.experts);
  shape.push_back(module.transposed ? in : out);
  shape.push_back(module.transposed ? out : in);
  return shape;
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
    if (!tensor && !rule.optional && found.missing.empty())
      found.missing = module + std::string(rule.suffixes.front());
  }
  return found;
}

std::optional<DType> float_dtype(const StoredTensor* tensor) {
  if (!tensor) return std::nullopt;
  const std::optional<DType> dtype = dtype_of_safetensors(tensor->entry->dtype);
  const bool is_float = dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
  return is_float ? dtype : std::nullopt;
}

}  // namespace

const TensorRule* StoredFormat::rule(Role role) const {
  const auto found = std::ranges::find(tensors, role, &TensorRule::role);
  return found == tensors.end() ? nullptr : &*found;
}

int64_t blocks_in(int64_t elements, int block) {
  return block == 0 ? 1 : (elements + block - 1) / block;
}

std::vector<int64_t> shape_of_matrix(const ModuleShape& module, const StoredFormat&) {
  if (module.vector) return {module.out};
  return shape_of(module, module.out, module.in);
}

std::vector<int64_t> shape_of_blocks(const ModuleShape& module, const StoredFormat& format) {
  return shape_of(module, blocks_in(module.out, format.values.block_out),
                  blocks_in(module.in, format.values.block_in));
}

std::vector<int64_t> shape_of_outputs(const ModuleShape& module, const StoredFormat&) {
  if (module.experts) return {module.experts, module.out};
  return {module.out};
}

std::vector<int64_t> shape_of_inputs(const ModuleShape& module, const StoredFormat&) {
  return {module.in};
}

std::vector<int64_t> shape_of_one(const ModuleShape&, const StoredFormat&) { return {1}; }

TensorRule bias_rule() {
  return {.role = Role::kBias,
          .suffixes = {".bias"},
          .dtypes = {"F32", "F16", "BF16"},
          .shape = shape_of_outputs};
}

WeightFormat ModuleTensors::weight_format() const {
  WeightFormat made = format->values;
  if (!format->quantized()) {
    const StoredTensor& weight = *of(Role::kWeight);
    const auto dtype = dtype_of_safetensors(weight.entry->dtype);
    SKIFF_CHECK(dtype, "the format {} reads {}", format->name, weight.entry->dtype);
    made.dtype = *dtype;
  } else if (made.scale && !format->derived) {
    made.scale = float_dtype(of(Role::kScale)).value_or(*made.scale);
  }
  return made;
}

ModuleTensors find_module(const Checkpoint& checkpoint, const FormatList& formats,
                          const std::string& module, bool bias) {
  ModuleTensors incomplete;  // result for the first format that reads the weight
  const StoredTensor* unreadable = nullptr;
  for (const StoredFormat* format : formats) {
    const TensorRule& rule = *format->rule(Role::kWeight);
    const StoredTensor* weight = find_tensor(checkpoint, rule, module);
    if (weight && !reads(rule, *weight)) {
      if (!unreadable) unreadable = weight;
      continue;
    }
    ModuleTensors found = collect(checkpoint, *format, module, bias);
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

std::vector<const StoredTensor*> find_tensors(const Checkpoint& checkpoint,
                                              const FormatList& formats,
                                              const std::string& module) {
  std::vector<const StoredTensor*> found;
  for (const StoredFormat* format : formats)
    for (const TensorRule& rule : format->tensors)
      if (const StoredTensor* tensor = find_tensor(checkpoint, rule, module))
        found.push_back(tensor);
  return found;
}

std::vector<std::string_view> readable_dtypes(const FormatList& formats) {
  std::vector<std::string_view> dtypes;
  for (const StoredFormat* format : formats)
    for (const std::string_view dtype : format->rule(Role::kWeight)->dtypes)
      if (std::ranges::find(dtypes, dtype) == dtypes.end()) dtypes.push_back(dtype);
  return dtypes;
}

}  // namespace skiff::model

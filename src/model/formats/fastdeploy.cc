// FastDeploy's own description, by names such as "wint8": of weights that it has quantized offline,
// .quant_weight and .weight_scale in Paddle's layout [in, out], or of what should be done to plain
// ones while they are loaded.
#include "base/log.h"
#include "model/formats/eight_bits.h"

namespace skiff::model {
namespace {

// As FastDeploy decides it.
bool is_stored_quantized(const Fields& fields) {
  const bool silent = !fields.has("kv_cache_quant_type");
  return fields.get("is_quantized", fields.get("is_moe_quantized", silent));
}

std::vector<std::string> names_of(const Fields& fields) {
  std::vector<std::string> names;
  for (const std::string_view key : {"quantization", "dense_quant_type", "moe_quant_type"})
    if (const auto name = fields.get<std::string>(key, ""); !name.empty() && name != "mix_quant")
      names.push_back(name);
  return names;
}

}  // namespace

bool is_fastdeploy(const Fields& fields) {
  return !names_of(fields).empty() && !fields.has("quant_method");
}

Quantization read_fastdeploy(const Fields& fields) {
  Quantization made;
  const std::vector<std::string> names = names_of(fields);
  if (!is_stored_quantized(fields)) {
    spdlog::info(
        "{} asks for {} at load, which Skiff does where the command line does: --quantization {}",
        fields.where(), names.front(), names.front());
    return made;
  }
  for (const std::string& name : names)
    if (name != "wint8" && name != "weight_only_int8")
      fail_load(
          "{}: weights that FastDeploy has quantized to {} are not supported, only wint8 is: use "
          "the bf16 checkpoint with --quantization",
          fields.where(), escaped(name, 60));
  if (fields.get("is_permuted", true))
    fail_load(
        "{}: \"is_permuted\" is not false, so weights are in the order of one GPU's kernels: use "
        "the bf16 checkpoint with --quantization wint8",
        fields.where());
  StoredFormat format = eight_bit_format({.name = "FastDeploy wint8, a scale for each output",
                                          .dtype = DType::kI8,
                                          .scale_suffix = ".weight_scale",
                                          .flat = true});
  format.tensors[0].suffixes = {".quant_weight"};
  format.tensors[1].suffixes.push_back(".quant_scale");
  made.about = format.name;
  made.formats = {std::move(format)};
  made.rules.push_back({NamePattern(PatternKind::kAll, "", fields.where()), {0}});
  return made;
}

}  // namespace skiff::model

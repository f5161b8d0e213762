// NVIDIA ModelOpt's floats of eight and four bits and its integers of four, described in
// config.json or in hf_quant_config.json: one algorithm for all layers, or one for each.
#include <map>
#include <numeric>

#include "base/log.h"
#include "model/family.h"
#include "model/formats/eight_bits.h"
#include "model/formats/fp4.h"
#include "model/formats/modelopt_awq.h"
#include "weights/name_list.h"

namespace skiff::model {

namespace {

constexpr int kBlock = 128;

std::vector<StoredFormat> fp8_of_tensors(const Fields&) {
  return {eight_bit_format(
      {.name = "ModelOpt fp8, a scale for each tensor, static activations",
       .scales = ScaleOf::kTensor,
       .input = InputFormat{.dtype = DType::kF8E4M3, .scales = InputFormat::kStatic}})};
}

std::vector<StoredFormat> fp8_of_outputs(const Fields&) {
  return {eight_bit_format({.name = "ModelOpt fp8, a scale for each output",
                            .flat = true,
                            .input = InputFormat{.dtype = DType::kF8E4M3}})};
}

// Scales are stored [blocks of out, 1, blocks of in, 1].
std::vector<int64_t> shape_of_spaced_blocks(const ModuleShape& m, const StoredFormat& f) {
  return {blocks_in(m.out, f.values.block_out), 1, blocks_in(m.in, f.values.block_in), 1};
}

std::vector<StoredFormat> fp8_of_blocks(const Fields&) {
  StoredFormat f = eight_bit_format({.name = "ModelOpt fp8, a scale for each block, weight-only",
                                     .scales = ScaleOf::kBlock,
                                     .block_out = kBlock,
                                     .block_in = kBlock});
  for (TensorRule& rule : f.tensors)
    if (rule.role == Role::kScale) rule.shape = shape_of_spaced_blocks;
  f.stacks = false;
  return {f};
}

// Activations stay as they are, whether or not the algorithm rounds them too.
std::vector<StoredFormat> nvfp4(const Fields&) {
  return {
      nvfp4_format({.name = "ModelOpt NVFP4", .weight = ".weight", .whole = ".weight_scale_2"})};
}

std::vector<StoredFormat> awq(const Fields& fields) {
  const int group = get_int(fields, "group_size", 128, 1, kMaxWidth);
  if (fields.get("has_zero_point", false))
    fail_load("{}: \"has_zero_point\" true is not supported", fields.where());
  return {modelopt_awq_with_factors(group), modelopt_awq(group)};
}

struct Algorithm {
  std::string_view name;
  // Returns the formats that a layer may have, in the order of trying.
  std::vector<StoredFormat> (*formats)(const Fields& fields);
};
constexpr Algorithm kAlgorithms[] = {
    {"FP8", fp8_of_tensors},      {"FP8_PER_CHANNEL_PER_TOKEN", fp8_of_outputs},
    {"FP8_PB_WO", fp8_of_blocks}, {"NVFP4", nvfp4},
    {"W4A16_NVFP4", nvfp4},       {"W4A16_AWQ", awq},
};
constexpr std::string_view kMixed = "MIXED_PRECISION";

// Appends the formats of an algorithm and returns their indices.
std::vector<size_t> add_formats(Quantization& made, const Fields& fields,
                                const std::string& algorithm) {
  const auto* found = std::ranges::find(kAlgorithms, algorithm, &Algorithm::name);
  if (found == std::end(kAlgorithms)) {
    std::vector<std::string_view> known;
    for (const Algorithm& a : kAlgorithms) known.push_back(a.name);
    fail_load(
        "{}: \"quant_algo\" {} is not supported; supported are {}, for all layers or, with {}, for "
        "each: convert the checkpoint to compressed-tensors",
        fields.where(), escaped(algorithm, 60), name_list(known), kMixed);
  }
  std::vector<StoredFormat> formats = found->formats(fields);
  std::vector<size_t> indices(formats.size());
  std::iota(indices.begin(), indices.end(), made.formats.size());
  for (StoredFormat& format : formats) made.formats.push_back(std::move(format));
  return indices;
}

// Each layer that is named, or whatever is in it, has the algorithm of its entry. Entries that say
// the same share their formats.
void add_layers(Quantization& made, const Fields& fields) {
  if (!fields.has("quantized_layers"))
    fail_load("{}: \"quant_algo\" {} needs \"quantized_layers\"", fields.where(), kMixed);
  const Fields layers = fields.child("quantized_layers");
  std::map<std::string, std::vector<size_t>> known;
  for (const auto& item : layers.json().items()) {
    const Fields layer(item.value(),
                       fmt::format("{}: {}", layers.where(), escaped(item.key(), 80)));
    auto [at, fresh] = known.try_emplace(item.value().dump());
    if (fresh) at->second = add_formats(made, layer, layer.need<std::string>("quant_algo"));
    made.rules.push_back({NamePattern(PatternKind::kName, item.key(), layers.where()), at->second});
  }
}

// Lists each name once.
std::string names_of(const std::vector<StoredFormat>& formats) {
  std::vector<std::string> names;
  for (const StoredFormat& format : formats)
    if (std::ranges::find(names, format.name) == names.end()) names.push_back(format.name);
  return name_list(names, 4);
}

}  // namespace

Quantization read_modelopt(const Fields& fields) {
  Quantization made;
  // Without an algorithm, weights are plain, and the KV cache has scales.
  if (!fields.has("quant_algo") &&
      (fields.has("kv_cache_quant_algo") || fields.has("kv_cache_scheme")))
    return made;
  add_plain_layers(made, fields, "exclude_modules", PatternKind::kWildcard);
  add_plain_layers(made, fields, "ignore", PatternKind::kWildcard);
  const auto algorithm = fields.need<std::string>("quant_algo");
  if (algorithm == kMixed)
    add_layers(made, fields);
  else
    made.rules.push_back(
        {NamePattern(PatternKind::kAll, "", fields.where()), add_formats(made, fields, algorithm)});
  // Weights of four bits are multiplied by activations as they are.
  if (std::ranges::any_of(made.formats, [](const StoredFormat& f) { return f.bits == 4; }))
    made.unused = {".input_scale"};
  made.about = algorithm == kMixed ? names_of(made.formats) : made.formats.back().name;
  return made;
}

}  // namespace skiff::model

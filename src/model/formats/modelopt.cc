// NVIDIA ModelOpt's floats of eight and four bits and its integers of four, described in
// config.json or in hf_quant_config.json.
#include <numeric>

#include "base/log.h"
#include "model/family.h"
#include "model/formats/eight_bits.h"
#include "model/formats/fp4.h"
#include "model/formats/modelopt_awq.h"

namespace skiff::model {

namespace {

std::vector<StoredFormat> awq_formats(const Fields& fields) {
  const int group = get_int(fields, "group_size", 128, 1, kMaxWidth);
  if (fields.get("has_zero_point", false))
    fail_load("{}: \"has_zero_point\" true is not supported", fields.where());
  return {modelopt_awq_with_factors(group), modelopt_awq(group)};
}

std::vector<StoredFormat> formats_of(const Fields& fields) {
  const auto algorithm = fields.need<std::string>("quant_algo");
  if (algorithm == "FP8")
    return {eight_bit_format(
        {.name = "ModelOpt fp8, a scale for each tensor, static activations",
         .scales = ScaleOf::kTensor,
         .input = InputFormat{.dtype = DType::kF8E4M3, .scales = InputFormat::kStatic}})};
  if (algorithm == "FP8_PER_CHANNEL_PER_TOKEN")
    return {eight_bit_format({.name = "ModelOpt fp8, a scale for each output",
                              .flat = true,
                              .input = InputFormat{.dtype = DType::kF8E4M3}})};
  if (algorithm == "NVFP4")
    return {
        nvfp4_format({.name = "ModelOpt NVFP4", .weight = ".weight", .whole = ".weight_scale_2"})};
  if (algorithm == "W4A16_AWQ") return awq_formats(fields);
  fail_load(
      "{}: \"quant_algo\" {} is not supported, only FP8, FP8_PER_CHANNEL_PER_TOKEN, NVFP4 and "
      "W4A16_AWQ are: convert the checkpoint to compressed-tensors",
      fields.where(), escaped(algorithm));
}

}  // namespace

Quantization read_modelopt(const Fields& fields) {
  Quantization made;
  made.formats = formats_of(fields);
  add_plain_layers(made, fields, "exclude_modules", PatternKind::kWildcard);
  add_plain_layers(made, fields, "ignore", PatternKind::kWildcard);
  std::vector<size_t> all(made.formats.size());
  std::iota(all.begin(), all.end(), size_t{0});
  made.rules.push_back({NamePattern(PatternKind::kAll, "", fields.where()), std::move(all)});
  // Weights of four bits are multiplied by activations as they are.
  if (made.formats[0].bits == 4) made.unused = {".input_scale"};
  made.about = made.formats.back().name;
  return made;
}

}  // namespace skiff::model

// NVIDIA ModelOpt's eight-bit floats, described in config.json or in hf_quant_config.json.
#include "base/log.h"
#include "model/formats/eight_bits.h"

namespace skiff::model {

Quantization read_modelopt(const Fields& fields) {
  const auto algorithm = fields.need<std::string>("quant_algo");
  EightBits what;
  if (algorithm == "FP8")
    what = {.name = "ModelOpt fp8, a scale for each tensor, static activations",
            .scales = ScaleOf::kTensor,
            .input = InputFormat{.dtype = DType::kF8E4M3, .scales = InputFormat::kStatic}};
  else if (algorithm == "FP8_PER_CHANNEL_PER_TOKEN")
    what = {.name = "ModelOpt fp8, a scale for each output",
            .flat = true,
            .input = InputFormat{.dtype = DType::kF8E4M3}};
  else
    fail_load(
        "{}: \"quant_algo\" {} is not supported, only FP8 and FP8_PER_CHANNEL_PER_TOKEN are: "
        "convert "
        "the checkpoint to compressed-tensors",
        fields.where(), escaped(algorithm));
  Quantization made;
  add_plain_layers(made, fields, "exclude_modules", PatternKind::kWildcard);
  add_plain_layers(made, fields, "ignore", PatternKind::kWildcard);
  made.formats = {eight_bit_format(what)};
  made.rules.push_back({NamePattern(PatternKind::kAll, "", fields.where()), {0}});
  made.unused = {".k_scale", ".v_scale"};
  made.about = what.name;
  return made;
}

}  // namespace skiff::model

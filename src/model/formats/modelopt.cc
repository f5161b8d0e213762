// NVIDIA ModelOpt's floats of eight and four bits, described in config.json or in
// hf_quant_config.json.
#include "base/log.h"
#include "model/formats/eight_bits.h"
#include "model/formats/fp4.h"

namespace skiff::model {

Quantization read_modelopt(const Fields& fields) {
  const auto algorithm = fields.need<std::string>("quant_algo");
  const bool four = algorithm == "NVFP4";
  EightBits what;
  if (algorithm == "FP8")
    what = {.name = "ModelOpt fp8, a scale for each tensor, static activations",
            .scales = ScaleOf::kTensor,
            .input = InputFormat{.dtype = DType::kF8E4M3, .scales = InputFormat::kStatic}};
  else if (algorithm == "FP8_PER_CHANNEL_PER_TOKEN")
    what = {.name = "ModelOpt fp8, a scale for each output",
            .flat = true,
            .input = InputFormat{.dtype = DType::kF8E4M3}};
  else if (!four)
    fail_load(
        "{}: \"quant_algo\" {} is not supported, only FP8, FP8_PER_CHANNEL_PER_TOKEN and NVFP4 "
        "are: convert the checkpoint to compressed-tensors",
        fields.where(), escaped(algorithm));
  Quantization made;
  add_plain_layers(made, fields, "exclude_modules", PatternKind::kWildcard);
  add_plain_layers(made, fields, "ignore", PatternKind::kWildcard);
  made.formats = {
      four ? nvfp4_format(
                 {.name = "ModelOpt NVFP4", .weight = ".weight", .whole = ".weight_scale_2"})
           : eight_bit_format(what)};
  made.rules.push_back({NamePattern(PatternKind::kAll, "", fields.where()), {0}});
  // Weights of four bits are multiplied by activations as they are.
  if (four) made.unused = {".input_scale"};
  made.about = made.formats[0].name;
  return made;
}

}  // namespace skiff::model

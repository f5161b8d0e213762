// Eight-bit floats (E4M3) under "quant_method": "fp8": blocks of DeepSeek-V3 (arXiv
// 2412.19437, 3.3) and Qwen, whose tensor weight_scale_inv multiplies in spite of its name, and
// one scale for a tensor, under AutoFP8's names or those of transformers.
#include "base/log.h"
#include "model/family.h"
#include "model/formats/eight_bits.h"
#include "weights/name_list.h"

namespace skiff::model {
namespace {

constexpr int kMaxBlock = 1 << 16;

std::pair<int, int> block_of(const Fields& fields) {
  const Json& value = fields.json().at("weight_block_size");
  const bool pair = value.is_array() && value.size() == 2;
  const auto out = pair ? int_in(value[0], 1, kMaxBlock) : std::nullopt;
  const auto in = pair ? int_in(value[1], 1, kMaxBlock) : std::nullopt;
  if (!out || !in)
    fail_load("{}: \"weight_block_size\" is {}; it must be two sizes, as [128, 128]",
              fields.where(), value.dump().substr(0, 60));
  return {*out, *in};
}

bool is_static(const Fields& fields) {
  const auto scheme = fields.get<std::string>("activation_scheme", "dynamic");
  if (scheme != "static" && scheme != "dynamic")
    fail_load("{}: \"activation_scheme\" is {}; it must be static or dynamic", fields.where(),
              escaped(scheme));
  return scheme == "static";
}

}  // namespace

Quantization read_fp8(const Fields& fields) {
  const auto fmt_name = fields.get<std::string>("fmt", "e4m3");
  if (fmt_name != "e4m3" && fmt_name != "float8_e4m3fn")
    fail_load("{}: \"fmt\" is {}; only e4m3 is supported", fields.where(), escaped(fmt_name));
  if (const auto experts = fields.get<std::string>("expert_dtype", ""); !experts.empty())
    fail_load("{}: \"expert_dtype\" {} is not supported", fields.where(), escaped(experts));
  EightBits what;
  if (fields.has("weight_block_size")) {
    if (is_static(fields))
      fail_load("{}: \"activation_scheme\" static does not go with \"weight_block_size\"",
                fields.where());
    const auto [out, in] = block_of(fields);
    what = {.name = fmt::format("fp8, blocks of {} x {}", out, in),
            .scales = ScaleOf::kBlock,
            .block_out = out,
            .block_in = in,
            .scale_suffixes = {".weight_scale_inv"},
            .input = InputFormat{.dtype = DType::kF8E4M3, .scales = InputFormat::kGroups}};
  } else {
    const bool fixed = is_static(fields);
    // A scale for each row of activations instead of one for all: results do not depend on others.
    what = {.name = fmt::format("fp8, a scale for each tensor, {} activations",
                                fixed ? "static" : "dynamic"),
            .scales = ScaleOf::kTensor,
            .scale_suffixes = {".weight_scale", ".weight_scale_inv"},
            .input = InputFormat{.dtype = DType::kF8E4M3,
                                 .scales = fixed ? InputFormat::kStatic : InputFormat::kToken}};
  }
  Quantization made;
  add_plain_layers(made, fields, "modules_to_not_convert", PatternKind::kComponents);
  add_plain_layers(made, fields, "ignored_layers", PatternKind::kName);
  made.formats = {eight_bit_format(what)};
  made.rules.push_back({NamePattern(PatternKind::kAll, "", fields.where()), {0}});
  made.about = what.name;
  return made;
}

Quantization read_fbgemm_fp8(const Fields& fields) {
  const EightBits what{.name = "fp8, a scale for each output",
                       .input = InputFormat{.dtype = DType::kF8E4M3}};
  Quantization made;
  add_plain_layers(made, fields, "modules_to_not_convert", PatternKind::kComponents);
  made.formats = {eight_bit_format(what)};
  made.rules.push_back({NamePattern(PatternKind::kAll, "", fields.where()), {0}});
  made.unused = {".input_scale_ub"};
  made.about = what.name;
  return made;
}

}  // namespace skiff::model

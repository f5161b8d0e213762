// compressed-tensors: pack-quantized for weights alone, int-quantized and float-quantized where
// activations are rounded, too. Readers: model/formats/compressed_tensors.cc, vLLM, transformers.
#include <algorithm>
#include <map>

#include "base/load_error.h"
#include "quantize/layout.h"

namespace skiff::quantize {
namespace {

bool packed(const WeightFormat& format) { return !format.input.has_value(); }

std::vector<NewTensor> scales_of(const std::string& module, const Rounded& r) {
  std::vector<float> scales;
  scales.reserve(r.steps.size());
  for (const Step& step : r.steps) scales.push_back(step.scale);
  const DType dtype = *r.format.scale;
  return {{.name = module + ".weight_scale",
           .dtype = std::string(safetensors_name(dtype)),
           .shape = {num_blocks(r.out, r.format.block_out), r.blocks_across()},
           .data = float_bytes(scales, dtype)}};
}

// Elements are stored plus 8, or plus 128, from the lowest bits of a word on; kU4 as they are.
void add_words(const std::string& module, const Rounded& r, std::vector<NewTensor>& to) {
  const int element = bits(r.format.dtype);
  const int64_t per = 32 / element, pitch = (r.in + per - 1) / per;
  const unsigned mask = (1u << element) - 1;
  const int offset = r.format.dtype == DType::kU4 ? 0 : 1 << (element - 1);
  std::vector<uint32_t> words(static_cast<size_t>(r.out * pitch));
  for (int64_t n = 0; n < r.out; ++n)
    for (int64_t k = 0; k < r.in; ++k) {
      const unsigned code =
          (r.codes[static_cast<size_t>(n * r.in + k)] + static_cast<unsigned>(offset)) & mask;
      words[static_cast<size_t>(n * pitch + k / per)] |= code << (k % per * element);
    }
  to.push_back({.name = module + ".weight_packed",
                .dtype = "I32",
                .shape = {r.out, pitch},
                .data = word_bytes(words)});
  const int64_t shape[] = {r.out, r.in};
  const auto* bytes = reinterpret_cast<const std::byte*>(shape);
  to.push_back({.name = module + ".weight_shape",
                .dtype = "I64",
                .shape = {2},
                .data = {bytes, bytes + sizeof(shape)}});
  if (!r.format.zero) return;
  const int64_t groups = r.blocks_across();
  std::vector<uint32_t> zeros(static_cast<size_t>((r.out + per - 1) / per * groups));
  for (int64_t n = 0; n < r.out; ++n)
    for (int64_t g = 0; g < groups; ++g)
      zeros[static_cast<size_t>(n / per * groups + g)] |=
          static_cast<uint32_t>(r.steps[static_cast<size_t>(n * groups + g)].zero)
          << (n % per * element);
  to.push_back({.name = module + ".weight_zero_point",
                .dtype = "I32",
                .shape = {(r.out + per - 1) / per, groups},
                .data = word_bytes(zeros)});
}

std::vector<NewTensor> tensors(const std::string& module, const Rounded& r) {
  std::vector<NewTensor> out = scales_of(module, r);
  if (packed(r.format)) {
    add_words(module, r, out);
    return out;
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(r.codes.data());
  out.push_back({.name = module + ".weight",
                 .dtype = r.format.dtype == DType::kF8E4M3 ? "F8_E4M3" : "I8",  // int4: a byte each
                 .shape = {r.out, r.in},
                 .data = {bytes, bytes + r.codes.size()}});
  return out;
}

std::string_view strategy(const WeightFormat& format) {
  if (format.block_out > 1) return "block";
  return format.block_in ? "group" : "channel";
}

Json weights_of(const WeightFormat& format) {
  Json out = {{"num_bits", bits(format.dtype)},
              {"type", format.dtype == DType::kF8E4M3 ? "float" : "int"},
              {"symmetric", !format.zero},
              {"strategy", strategy(format)},
              {"dynamic", false},
              {"actorder", nullptr},
              {"observer", "minmax"},
              {"observer_kwargs", Json::object()},
              {"block_structure", nullptr},
              {"group_size", nullptr}};
  if (format.block_out > 1)
    out["block_structure"] = {format.block_out, format.block_in};
  else if (format.block_in)
    out["group_size"] = format.block_in;
  return out;
}

Json input_of(const WeightFormat& format) {
  if (!format.input) return nullptr;
  const bool groups = format.input->scales == InputFormat::kGroups;
  Json out = {{"num_bits", 8},
              {"type", format.input->dtype == DType::kI8 ? "int" : "float"},
              {"symmetric", true},
              {"strategy", groups ? "group" : "token"},
              {"dynamic", true},
              {"actorder", nullptr},
              {"observer", nullptr},
              {"observer_kwargs", Json::object()},
              {"block_structure", nullptr},
              {"group_size", nullptr}};
  if (groups) out["group_size"] = InputFormat::kGroup;
  return out;
}

std::string_view format_name(const WeightFormat& format) {
  if (packed(format)) return "pack-quantized";
  return format.dtype == DType::kF8E4M3 ? "float-quantized" : "int-quantized";
}

Json kv_scheme(DType kv) {
  return {{"num_bits", 8},        {"type", kv == DType::kI8 ? "int" : "float"},
          {"symmetric", true},    {"strategy", "tensor"},
          {"dynamic", false},     {"observer", "minmax"},
          {"group_size", nullptr}};
}

// Layers in the format that was asked for are targets by class; others, whose inputs groups do not
// divide, and those that stay as they were, which have one format, by name.
Json config(const QuantizedModel& model) {
  Json groups = Json::object();
  const auto group = [&](Json targets, const WeightFormat& format) {
    const std::string name = fmt::format("group_{}", groups.size());
    groups[name] = {{"targets", std::move(targets)},
                    {"weights", weights_of(format)},
                    {"input_activations", input_of(format)},
                    {"output_activations", nullptr},
                    {"format", format_name(format)}};
  };
  Json others = Json::array();
  WeightFormat other;
  bool main = false;
  for (const ModuleFormat& module : model.modules) {
    if (module.format == model.format) {
      main = true;
      continue;
    }
    others.push_back("re:" + exact_pattern(module.name));
    other = module.format;
  }
  if (main) group({"Linear"}, model.format);
  if (!others.empty()) group(main ? others : Json{"Linear"}, other);
  Json kept = Json::array();
  for (const ModuleFormat& module : model.kept) kept.push_back("re:" + exact_pattern(module.name));
  if (!kept.empty()) group(kept, model.kept.front().format);
  Json out = {{"quant_method", "compressed-tensors"},
              {"format", format_name(model.format)},
              {"quantization_status", "compressed"},
              {"global_compression_ratio", nullptr},
              {"kv_cache_scheme", model.kv ? kv_scheme(*model.kv) : Json(nullptr)},
              {"config_groups", groups},
              {"ignore", model.plain}};
  return out;
}

void check(const std::string& module, int64_t /*out*/, int64_t in, const WeightFormat& format,
           const WeightFormat& /*asked*/) {
  if (bits(format.dtype) == 4 && in % 2)
    fail_load("{} has {} inputs; 4 bits need an even number: add --ignore {}", module, in, module);
}

}  // namespace

const Layout kCompressedTensorsLayout{.name = "compressed-tensors",
                                      .method = "compressed-tensors",
                                      .scale = DType::kBF16,
                                      .check = check,
                                      .tensors = tensors,
                                      .config = config,
                                      .holds = Layout::kAll};

}  // namespace skiff::quantize

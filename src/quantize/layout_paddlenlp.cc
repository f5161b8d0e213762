// PaddleNLP's a8w8: elements as int8 under the names of its classes, and tables beside the tensors
// whose numbers are largest magnitudes, 127 times what a scale is. Reader:
// model/formats/paddlenlp.cc, and model/kv_scales.cc for the cache.
#include <cmath>

#include "base/load_error.h"
#include "quantize/layout.h"

namespace skiff::quantize {
namespace {

constexpr float kMostCode = 127;

struct Family {
  std::string_view arch, base;
};
constexpr Family kFamilies[] = {{"LlamaForCausalLM", "llama."}, {"Qwen2ForCausalLM", "qwen2."}};

const Family* family_of(const ModelSpec& spec) {
  for (const Family& family : kFamilies)
    if (family.arch == spec.arch) return &family;
  return nullptr;
}

void check_model(const ModelSpec& spec) {
  const Family* family = family_of(spec);
  if (!family)
    fail_load(
        "--layout paddlenlp is for LlamaForCausalLM and Qwen2ForCausalLM, and this is {}: use "
        "--layout compressed-tensors",
        spec.arch);
  for (const Layer& layer : spec.layers) {
    const auto& attention = std::get<Gqa>(layer.mixer);
    if (attention.out_bias || std::get<Dense>(layer.ffn).bias ||
        (attention.qkv_bias && family->base == "llama."))
      fail_load(
          "--layout paddlenlp: PaddleNLP's {} has no such biases as this model has: use --layout "
          "compressed-tensors",
          spec.arch);
  }
}

std::string rename(std::string_view name, const ModelSpec& spec) {
  constexpr std::string_view kBase = "model.";
  if (!name.starts_with(kBase)) return std::string(name);
  return std::string(family_of(spec)->base).append(name.substr(kBase.size()));
}

void check(const std::string& /*module*/, int64_t /*out*/, int64_t /*in*/,
           const WeightFormat& /*format*/, const WeightFormat& /*asked*/) {}

std::vector<NewTensor> tensors(const std::string& module, const Rounded& r) {
  const auto* bytes = reinterpret_cast<const std::byte*>(r.codes.data());
  return {{.name = module + ".weight",
           .dtype = "I8",
           .shape = {r.out, r.in},
           .data = {bytes, bytes + r.codes.size()}}};
}

Json config(const QuantizedModel& model) {
  return {{"quant_type", model.kv ? "a8w8c8" : "a8w8"},
          {"smooth", true},
          {"shift", false},
          {"shift_smooth_all_linears", false},
          {"quant_round_type", 0},
          {"weight_quant_method", "abs_max_channel_wise"},
          {"act_quant_method", "abs_max"},
          {"quantizer", "skiff:" + model.version}};
}

// The magnitude that a reader divides by 127 to have this scale.
float magnitude(float scale) {
  const float near = scale * kMostCode;
  for (const float one : {near, std::nextafter(near, 0.0f), std::nextafter(near, INFINITY)})
    if (one / kMostCode == scale) return one;
  SKIFF_CHECK(false, "the scale {} is no 127th of a float32", scale);
}

// A number for each query head: the predictor takes the first of those that share a KV head.
std::vector<float> by_query_head(const std::vector<float>& largest, int sharers) {
  std::vector<float> numbers;
  for (const float most : largest)
    numbers.insert(numbers.end(), static_cast<size_t>(sharers), most > 0 ? most : 1);
  return numbers;
}

TextFile file(const char* name, const Json& table) { return {name, table.dump(1) + "\n"}; }

std::vector<TextFile> tables(const QuantizedModel& model) {
  Json weights = Json::object(), inputs = Json::object(), cache = Json::object();
  for (const ModuleScales& module : model.scales) {
    Json& outputs = weights[module.name + ".weight_quanter"] = Json::array();
    for (const float scale : module.outputs) outputs.push_back(magnitude(scale));
    const float largest = module.largest_input;
    inputs[module.name + ".activation_quanter"] = largest > 0 ? largest : 1;
  }
  for (const CacheLargest& layer : model.cache) {
    cache[layer.attention + ".cachek_matmul.activation_quanter"] =
        by_query_head(layer.keys, layer.sharers);
    cache[layer.attention + ".cachev_matmul.activation_quanter"] =
        by_query_head(layer.values, layer.sharers);
  }
  std::vector<TextFile> files = {file("weight_scales.json", weights),
                                 file("act_scales.json", inputs)};
  if (model.kv) files.push_back(file("cachekv_scales.json", cache));
  return files;
}

}  // namespace

const Layout kPaddleNlpLayout{.name = "paddlenlp",
                              .method = "paddlenlp",
                              .scale = DType::kF32,
                              .check = check,
                              .tensors = tensors,
                              .config = config,
                              .holds = Layout::kStaticInts,
                              .check_model = check_model,
                              .rename = rename,
                              .tables = tables};

}  // namespace skiff::quantize

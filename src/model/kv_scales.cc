#include "model/kv_scales.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>

#include "arch/cost.h"
#include "base/json.h"
#include "base/load_error.h"
#include "base/log.h"
#include "model/stored_numbers.h"
#include "weights/checkpoint.h"

namespace skiff::model {
namespace {

namespace fs = std::filesystem;

// What a stored number is.
enum class Meaning : uint8_t {
  kScale,    // what an element counts, in the elements that the configuration names
  kFloat8,   // max / 448
  kLargest,  // max
};

struct Naming {
  std::string_view k, v;  // endings of names, after the attention's
  Meaning meaning;
};
constexpr Naming kNamings[] = {
    {".k_scale", ".v_scale", Meaning::kScale},
    {".kv_scale", ".kv_scale", Meaning::kScale},  // one number for both
    {".k_proj.k_scale", ".v_proj.v_scale", Meaning::kFloat8},
    {".k_proj.output_scale", ".v_proj.output_scale", Meaning::kFloat8},
    {".cachek_matmul.activation_scale", ".cachev_matmul.activation_scale", Meaning::kLargest},
};
// Scales of queries have no use; zero points of FastDeploy's "_zp" variants are refused below.
constexpr std::string_view kQuery = ".self_attn.q_scale";
constexpr std::string_view kAttention = ".self_attn";
constexpr JsonLimits kLimits = {.max_bytes = 64u << 20, .max_depth = 8};

// The layer in "model.layers.12.self_attn...", or nothing.
std::optional<int> layer_of(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  const size_t at = name.find(kLayers);
  if (at == name.npos) return std::nullopt;
  int layer = 0;
  const char* begin = name.data() + at + kLayers.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), layer);
  if (error != std::errc{} || end == begin) return std::nullopt;
  return layer;
}

float most_element(DType dtype) { return dtype == DType::kI8 ? 127.0f : 448.0f; }

// Numbers of one layer's keys or values, and where they are from.
struct Found {
  std::vector<float> numbers;
  std::string where;
  Meaning meaning = Meaning::kLargest;
};
// By layer, keys first.
using FoundPairs = std::map<int, std::array<Found, 2>>;

void read_tensors(const std::string& dir, FoundPairs& found) {
  const Checkpoint checkpoint(dir);
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const std::optional<int> layer = layer_of(name);
    if (!layer || !is_kv_scale(name)) continue;
    if (name.ends_with("activation_zero_point"))
      fail_load(
          "tensor \"{}\": zero points of the KV cache are not supported; choose "
          "--kv-cache-dtype auto",
          escaped(name));
    for (const Naming& naming : kNamings)
      for (const size_t half : {size_t{0}, size_t{1}}) {
        if (!name.ends_with(std::string(kAttention) + std::string(half ? naming.v : naming.k)))
          continue;
        Found& made = found[*layer][half];
        if (!made.where.empty())
          fail_load("tensors \"{}\" and \"{}\" are scales of the same cache", escaped(made.where),
                    escaped(name));
        made = {.numbers = {}, .where = name, .meaning = naming.meaning};
        int64_t count = 1;
        for (const int64_t n : tensor.entry->shape) count *= n;
        const std::string& dtype = tensor.entry->dtype;
        if (dtype != "F32" && dtype != "F16" && dtype != "BF16")
          fail_load("tensor \"{}\" is {}; scales of the KV cache must be floats", escaped(name),
                    dtype);
        for (int64_t i = 0; i < count; ++i) made.numbers.push_back(stored_float(tensor, i));
      }
  }
}

std::vector<float> numbers_of(const Json& value, const std::string& where) {
  std::vector<float> numbers;
  const auto add = [&](const Json& number) {
    if (!number.is_number()) fail_load("{}: {} is no number", where, number.dump().substr(0, 40));
    numbers.push_back(number.get<float>());
  };
  if (!value.is_array()) {
    add(value);
    return numbers;
  }
  for (const Json& item : value)
    if (item.is_array())
      for (const Json& inner : item) add(inner);
    else
      add(item);
  return numbers;
}

void read_file(const std::string& dir, FoundPairs& found) {
  for (const std::string_view file : kKvScaleFiles) {
    const std::string path = (fs::path(dir) / file).string();
    if (!fs::exists(path)) continue;
    const Json json = read_json_file(path, kLimits);
    for (const auto& [key, value] : json.items()) {
      const std::optional<int> layer = layer_of(key);
      const bool k = key.find("cachek_matmul") != key.npos;
      if (!layer || (!k && key.find("cachev_matmul") == key.npos)) continue;
      const std::string where = fmt::format("{}: \"{}\"", path, escaped(key));
      if (key.ends_with("zero_point"))
        fail_load("{}: zero points of the KV cache are not supported", where);
      found[*layer][k ? 0 : 1] = {.numbers = numbers_of(value, where), .where = where};
    }
    return;
  }
  if (fs::exists(fs::path(dir) / "cachekv_scales_0.json"))
    fail_load("{}: cachekv_scales_0.json is of one rank of several; write cachekv_scales.json",
              dir);
}

// One number for each KV head.
std::vector<float> by_head(const Found& found, const Gqa& m) {
  const auto count = std::ssize(found.numbers);
  if (count == 1) return std::vector<float>(static_cast<size_t>(m.kv_heads), found.numbers[0]);
  if (count == m.kv_heads) return found.numbers;
  if (count != m.heads)
    fail_load(
        "{} has {} scales of the KV cache; there must be one, or one for each of {} KV "
        "heads{}",
        found.where, count, m.kv_heads,
        count == int64_t{m.kv_heads} * m.head_dim ? " (scales for each channel are not "
                                                    "supported)"
                                                  : "");
  std::vector<float> firsts;
  for (int h = 0; h < m.heads; h += m.heads / m.kv_heads)
    firsts.push_back(found.numbers[static_cast<size_t>(h)]);
  return firsts;
}

// Makes the number the scale of elements of `dtype`. `stated` is what scales of the checkpoint are
// for.
float scale_of(float number, const Found& found, DType dtype, DType stated) {
  const DType from = found.meaning == Meaning::kFloat8 ? DType::kF8E4M3 : stated;
  float scale = number;
  if (found.meaning == Meaning::kLargest)
    scale = number / most_element(dtype);
  else if (from != dtype)
    scale = number * most_element(from) / most_element(dtype);
  const float most = dtype == DType::kF8E4M3 ? 0x1p7f : 0x1p64f;
  if (!(scale >= 0x1p-64f && scale <= most))
    fail_load("{}: the scale {} of the KV cache is not in the range of {}, from 2^-64 to {}",
              found.where, scale, name(dtype), most);
  return scale;
}

}  // namespace

bool is_kv_scale(std::string_view name) {
  if (name.ends_with(kQuery)) return true;
  if (name.ends_with("k_matmul.activation_zero_point") ||
      name.ends_with("v_matmul.activation_zero_point"))
    return true;
  return std::ranges::any_of(kNamings, [&](const Naming& naming) {
    for (const std::string_view end : {naming.k, naming.v})
      if (name.ends_with(end) && name.substr(0, name.size() - end.size()).ends_with(kAttention))
        return true;
    return false;
  });
}

std::optional<std::vector<KvScales>> read_kv_scales(const std::string& dir,
                                                    const ModelConfig& config, DType dtype) {
  SKIFF_CHECK(dtype == DType::kI8 || dtype == DType::kF8E4M3, "a cache in {}", name(dtype));
  FoundPairs found;
  read_file(dir, found);
  if (found.empty()) read_tensors(dir, found);
  if (found.empty()) return std::nullopt;
  if (!config.quantization.kv_refusal.empty())
    fail_load("{}: {}; choose --kv-cache-dtype auto", config.quantization.where,
              config.quantization.kv_refusal);
  std::vector<KvScales> scales;
  for (size_t i = 0; i < config.spec.layers.size(); ++i) {
    const auto* m = std::get_if<Gqa>(&config.spec.layers[i].mixer);
    SKIFF_CHECK(m, "a quantized cache for layer {}, which has no keys and values", i);
    const std::array<Found, 2>& pair = found[static_cast<int>(i)];
    for (const size_t half : {size_t{0}, size_t{1}})
      if (pair[half].numbers.empty())
        fail_load(
            "{}: layer {} has no scale of its {} for the KV cache, others have; choose "
            "--kv-cache-dtype auto, or repair the checkpoint",
            dir, i, half ? "values" : "keys");
    KvScales& made = scales.emplace_back();
    for (const size_t half : {size_t{0}, size_t{1}})
      for (const float number : by_head(pair[half], *m))
        (half ? made.v : made.k)
            .push_back(scale_of(number, pair[half], dtype, config.quantization.kv_elements));
  }
  return scales;
}

bool are_placeholders(const std::vector<KvScales>& scales) {
  const auto ones = [](const std::vector<float>& x) {
    return std::ranges::all_of(x, [](float s) { return s == 1; });
  };
  return std::ranges::all_of(scales, [&](const KvScales& s) { return ones(s.k) && ones(s.v); });
}

}  // namespace skiff::model

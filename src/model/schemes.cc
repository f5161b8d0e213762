#include "model/schemes.h"

#include <algorithm>

#include "base/json.h"
#include "base/load_error.h"
#include "base/nearest.h"
#include "weights/name_list.h"

namespace skiff::model {
namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kI8 = DType::kI8, kI4 = DType::kI4,
                kF8 = DType::kF8E4M3;
constexpr std::string_view kConfigFlag = "--quantization-config";

// Each scheme is one line, however long.
// clang-format off
std::vector<Scheme> make_schemes() {
  const InputFormat tokens{kI8, InputFormat::kToken}, groups{kF8, InputFormat::kGroups}, tokens_of_floats{kF8, InputFormat::kToken};
  return {
      {"wint8", "8-bit integers, a scale for each output, as Paddle rounds them", {kI8, 1, 0, kBF16}, QuantRule::kPaddle},
      {"wint4", "4-bit integers, a scale for each output, as Paddle rounds them", {kI4, 1, 0, kBF16}, QuantRule::kPaddle},
      {"int4", "4-bit integers, a scale for each 128 inputs", {kI4, 1, 128, kBF16}, QuantRule::kSignedExtreme, 64},
      {"block_wise_fp8", "8-bit floats, a scale for each 128 x 128, times 8-bit activations", {kF8, 128, 128, kF32, {}, groups}, QuantRule::kFloat8},
      {"fp8", "8-bit floats times 8-bit activations, a scale for each output and each token", {kF8, 1, 0, kF32, {}, tokens_of_floats}, QuantRule::kFloat8},
      {"a8w8", "8-bit integers times 8-bit activations, a scale for each output and each token", {kI8, 1, 0, kF32, {}, tokens}, QuantRule::kAbsMax},
      {"w4a8", "4-bit integers times 8-bit activations, a scale for each output and each token", {kI4, 1, 0, kF32, {}, tokens}, QuantRule::kPaddle},
  };
}
// clang-format on

struct Alias {
  std::string_view name, scheme;
};
constexpr Alias kAliases[] = {{"weight_only_int8", "wint8"},
                              {"weight_only_int4", "wint4"},
                              {"w8a8", "a8w8"},
                              {"a8w8_fp8", "block_wise_fp8"},
                              {"wfp8afp8", "fp8"}};

// Names that mean one scheme for experts and another one for all other layers but the head; without
// experts, `alone`.
struct Recipe {
  std::string_view name, experts, others, alone;
};
constexpr Recipe kRecipes[] = {
    {"wint4", "wint4", "wint8", "wint4"},
    {"weight_only_int4", "wint4", "wint8", "wint4"},
    {"w4a8", "w4a8", "a8w8", "w4a8"},
    {"fp8", "block_wise_fp8", "fp8", "fp8"},
    {"wfp8afp8", "block_wise_fp8", "fp8", "fp8"},
    {"a8w8_fp8_wint4", "wint4", "block_wise_fp8", "block_wise_fp8"},
};

constexpr std::string_view kNone = "none";

std::vector<std::string_view> scheme_names() {
  std::vector<std::string_view> names;
  for (const Scheme& scheme : schemes()) names.push_back(scheme.name);
  for (const Alias& alias : kAliases) names.push_back(alias.name);
  for (const Recipe& recipe : kRecipes)
    if (std::ranges::find(names, recipe.name) == names.end()) names.push_back(recipe.name);
  return names;
}

std::string hint(std::string_view word, const std::vector<std::string_view>& words) {
  const std::string_view best = nearest(word, words);
  if (best.empty()) return {};
  std::string text = "did you mean ";
  text += best;
  return text += "? ";
}

const Scheme* need_scheme(std::string_view name, const std::string& where) {
  if (const Scheme* scheme = find_scheme(name)) return scheme;
  const std::vector<std::string_view> names = scheme_names();
  fail_load("{} is \"{}\", which is not there; {}known are {}", where, name, hint(name, names),
            name_list(names));
}

bool has_experts(const ModelSpec& spec) {
  return std::ranges::any_of(
      spec.layers, [](const Layer& layer) { return std::holds_alternative<Moe>(layer.ffn); });
}

std::vector<LayerKind> kinds_of_key(const std::string& key) {
  if (key == "dense_quant_type") return {LayerKind::kAttention, LayerKind::kDense};
  if (key == "moe_quant_type") return {LayerKind::kExperts};
  std::vector<std::string_view> known(kLayerKindNames.begin(), kLayerKindNames.end());
  for (size_t i = 0; i < known.size(); ++i)
    if (key == known[i]) return {static_cast<LayerKind>(i)};
  known.insert(known.end(), {"dense_quant_type", "moe_quant_type", "quantization"});
  fail_load("{}: unknown key \"{}\"; {}known are {}", kConfigFlag, key, hint(key, known),
            name_list(known));
}

void apply_config(SchemeChoice& choice, std::string_view text) {
  const Result<Json> json = parse_json(text);
  if (!json || !json->is_object())
    fail_load(
        "{} is not a JSON object such as {{\"experts\": \"wint4\", \"dense\": \"wint8\"}}: {}",
        kConfigFlag, json ? text : std::string_view(json.error().what));
  for (const auto& [key, value] : json->items()) {
    if (!value.is_string())
      fail_load("{}: \"{}\" is {}; it must be the name of a scheme, or \"{}\"", kConfigFlag, key,
                value.dump().substr(0, 80), kNone);
    const auto name = value.get<std::string>();
    if (key == "quantization" && name == "mix_quant") continue;
    const Scheme* scheme =
        name == kNone ? nullptr : need_scheme(name, std::string(kConfigFlag) + ": \"" + key + '"');
    for (const LayerKind kind : kinds_of_key(key)) choice.set(kind, scheme);
  }
}

}  // namespace

std::optional<WeightFormat> Scheme::format_for(int64_t in) const {
  WeightFormat out = format;
  if (bits(format.dtype) == 4 && in % 2 != 0) return std::nullopt;
  if (narrower_block_in == 0 || in % format.block_in == 0) return out;
  out.block_in = in % narrower_block_in == 0 ? narrower_block_in : 0;
  return out;
}

const std::vector<Scheme>& schemes() {
  static const std::vector<Scheme> all = make_schemes();
  return all;
}

const Scheme* find_scheme(std::string_view name) {
  for (const Alias& alias : kAliases)
    if (name == alias.name) name = alias.scheme;
  const auto found = std::ranges::find(schemes(), name, &Scheme::name);
  return found == schemes().end() ? nullptr : &*found;
}

bool SchemeChoice::any() const {
  return std::ranges::any_of(of_, [](const Scheme* scheme) { return scheme != nullptr; });
}

std::string SchemeChoice::describe() const {
  std::string text;
  for (const Scheme& scheme : schemes()) {
    std::string kinds;
    for (size_t i = 0; i < kNumLayerKinds; ++i)
      if (of_[i] == &scheme) kinds += (kinds.empty() ? "" : ", ") + std::string(kLayerKindNames[i]);
    if (!kinds.empty())
      text += (text.empty() ? "" : "; ") + std::string(scheme.name) + " for " + kinds;
  }
  return text;
}

SchemeChoice choose_schemes(std::string_view name, std::string_view config, const ModelSpec& spec,
                            std::string_view asked) {
  SchemeChoice choice;
  if (!name.empty() && name.front() == '{') {
    apply_config(choice, name);
  } else if (!name.empty() && name != kNone) {
    const auto* recipe = std::ranges::find(kRecipes, name, &Recipe::name);
    const bool mixed = recipe != std::end(kRecipes);
    const bool apart = mixed && has_experts(spec);
    const std::string_view experts = apart ? recipe->experts : mixed ? recipe->alone : name;
    const std::string_view others = apart ? recipe->others : experts;
    choice.set(LayerKind::kExperts, need_scheme(experts, std::string(asked)));
    choice.set(LayerKind::kAttention, find_scheme(others));
    choice.set(LayerKind::kDense, find_scheme(others));
  }
  if (!config.empty()) apply_config(choice, config);
  return choice;
}

}  // namespace skiff::model

#include "model/family.h"

#include <cmath>
#include <optional>

#include "base/log.h"

namespace skiff {
namespace {

constexpr int kMaxContext = 1 << 27, kMaxHeads = 1 << 10, kMaxHeadDim = 1 << 10;

float need_positive(const Fields& config, std::string_view key) {
  const auto value = config.need<double>(key);
  if (!(value > 0 && value < 1e12))
    fail_load("{}: \"{}\" is {}, must be positive", config.where(), key, value);
  return static_cast<float>(value);
}

RopeScaling read_scaling(const Fields& config, const Fields& rope, int max_context) {
  const auto type = rope.get<std::string>("rope_type", rope.get<std::string>("type", "default"));
  if (type == "default") return {};
  if (type == "linear") return LinearScaling{.factor = need_positive(rope, "factor")};
  if (type != "llama3")
    fail_load("{}: \"rope_type\" \"{}\" is not supported; known: default, linear, llama3",
              rope.where(), escaped(type));
  constexpr std::string_view kContext = "original_max_position_embeddings";
  const Fields& holder = config.has(kContext) ? config : rope;
  const Llama3Scaling s{.factor = need_positive(rope, "factor"),
                        .low_factor = need_positive(rope, "low_freq_factor"),
                        .high_factor = need_positive(rope, "high_freq_factor"),
                        .original_ctx = get_int(holder, kContext, max_context, 1, kMaxContext)};
  if (s.high_factor <= s.low_factor)
    fail_load("{}: \"high_freq_factor\" {} must be above \"low_freq_factor\" {}", rope.where(),
              s.high_factor, s.low_factor);
  return s;
}

// "rope_parameters" holds all of it in newer files; older ones have "rope_theta" beside
// "rope_scaling".
Rope read_rope(const Fields& config, int head_dim, int max_context, double default_theta) {
  const Fields rope = config.child(config.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  for (const auto& [key, value] : rope.json().items())
    if (value.is_object())
      fail_load("{}: \"{}\": rope that differs between layers is not supported", rope.where(),
                escaped(key));
  for (const Fields* holder : {&config, &rope})
    if (const auto part = holder->get<double>("partial_rotary_factor", 1.0); part != 1.0)
      fail_load("{}: \"partial_rotary_factor\" {} is not supported", holder->where(), part);
  Rope out{.theta = static_cast<float>(default_theta),
           .dim = head_dim,
           .scaling = read_scaling(config, rope, max_context)};
  for (const Fields* holder : {&config, &rope})
    if (holder->has("rope_theta")) out.theta = need_positive(*holder, "rope_theta");
  return out;
}

Gqa read_gqa(const Fields& config, int hidden, int max_context, const Defaults& defaults) {
  Gqa m{.heads = need_int(config, "num_attention_heads", 1, kMaxHeads)};
  m.kv_heads = get_int(config, "num_key_value_heads", m.heads, 1, m.heads);
  if (m.heads % m.kv_heads)
    fail_load("{}: \"num_attention_heads\" {} is not a multiple of \"num_key_value_heads\" {}",
              config.where(), m.heads, m.kv_heads);
  if (!config.has("head_dim") && !defaults.head_dim && hidden % m.heads)
    fail_load(
        "{}: \"hidden_size\" {} is not a multiple of \"num_attention_heads\" {}, and there is no "
        "\"head_dim\"",
        config.where(), hidden, m.heads);
  m.head_dim = get_int(config, "head_dim", defaults.head_dim ? defaults.head_dim : hidden / m.heads,
                       2, kMaxHeadDim);
  if (m.head_dim % 2) fail_load("{}: \"head_dim\" {} is odd", config.where(), m.head_dim);
  m.rope = read_rope(config, m.head_dim, max_context, defaults.rope_theta);
  return m;
}

void check_act(const Fields& config) {
  const auto act = config.get<std::string>("hidden_act", "silu");
  if (act != "silu" && act != "swish")
    fail_load("{}: \"hidden_act\" \"{}\" is not supported; known: silu", config.where(),
              escaped(act));
}

int checked_int(const Fields& config, std::string_view key, int min, int max) {
  const Json& value = config.json().at(std::string(key));
  if (!value.is_number_integer())
    fail_load("{}: key \"{}\" must be an integer, is {}", config.where(), key,
              value.dump().substr(0, 80));
  const bool fits =
      value.is_number_unsigned() ? value.get<uint64_t>() <= static_cast<uint64_t>(max) : true;
  if (!fits || value.get<int64_t>() < min || value.get<int64_t>() > max)
    fail_load("{}: \"{}\" is {}, must be in [{}, {}]", config.where(), key, value.dump(), min, max);
  return value.get<int>();
}

}  // namespace

int need_int(const Fields& config, std::string_view key, int min, int max) {
  if (!config.has(key)) fail_load("{}: missing key \"{}\"", config.where(), key);
  return checked_int(config, key, min, max);
}

int get_int(const Fields& config, std::string_view key, int fallback, int min, int max) {
  return config.has(key) ? checked_int(config, key, min, max) : fallback;
}

ModelSpec llama_like(const Fields& config) { return llama_like(config, Defaults{}); }

ModelSpec llama_like(const Fields& config, const Defaults& defaults) {
  check_act(config);
  ModelSpec spec;
  spec.hidden = need_int(config, "hidden_size", 1, kMaxWidth);
  spec.vocab = need_int(config, "vocab_size", 1, kMaxVocab);
  spec.max_context = need_int(config, "max_position_embeddings", 1, kMaxContext);
  const auto eps = config.get<double>("rms_norm_eps", defaults.eps);
  if (!(eps >= 0 && eps < 1))
    fail_load("{}: \"rms_norm_eps\" is {}, must be in [0, 1)", config.where(), eps);
  spec.eps = static_cast<float>(eps);
  spec.tied_head = config.get<bool>("tie_word_embeddings", defaults.tied_head);
  const Layer layer{.mixer = read_gqa(config, spec.hidden, spec.max_context, defaults),
                    .ffn = Dense{.width = need_int(config, "intermediate_size", 1, kMaxWidth)}};
  const int layers = need_int(config, "num_hidden_layers", 1, kMaxLayers);
  spec.layers.assign(static_cast<size_t>(layers), layer);
  return spec;
}

void qwen_windows(ModelSpec& spec, const Fields& config, int first_layer) {
  if (!config.get<bool>("use_sliding_window", false) || !config.has("sliding_window")) return;
  const int window = need_int(config, "sliding_window", 1, kMaxContext);
  first_layer = get_int(config, "max_window_layers", first_layer, 0, kMaxContext);
  const auto types = config.get<std::vector<std::string>>("layer_types", {});
  if (!types.empty() && types.size() != spec.layers.size())
    fail_load("{}: \"layer_types\" has {} entries for {} layers", config.where(), types.size(),
              spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (!types.empty() && types[i] != "sliding_attention" && types[i] != "full_attention")
      fail_load("{}: \"layer_types\" has \"{}\", not supported", config.where(), escaped(types[i]));
    const bool sliding =
        types.empty() ? static_cast<int>(i) >= first_layer : types[i] == "sliding_attention";
    if (sliding) std::get<Gqa>(spec.layers[i].mixer).window = window;
  }
}

}  // namespace skiff

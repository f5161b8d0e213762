#include "model/family.h"

#include <climits>

#include "base/log.h"

namespace skiff::model {
namespace {

RopeScaling read_scaling(const Fields& config, const Fields& rope, int max_context) {
  const auto type = rope.get<std::string>("rope_type", rope.get<std::string>("type", "default"));
  if (type == "default") return {};
  if (type == "linear") return LinearScaling{.factor = need_rope_number(rope, "factor")};
  if (type != "llama3")
    fail_load("{}: \"rope_type\" \"{}\" is not supported; known: default, linear, llama3",
              rope.where(), escaped(type));
  constexpr std::string_view kContext = "original_max_position_embeddings";
  const Fields& holder = config.has(kContext) ? config : rope;
  const Llama3Scaling s{.factor = need_rope_number(rope, "factor"),
                        .low_factor = need_rope_number(rope, "low_freq_factor"),
                        .high_factor = need_rope_number(rope, "high_freq_factor"),
                        .original_ctx = get_int(holder, kContext, max_context, 1, kMaxContext)};
  if (s.high_factor <= s.low_factor)
    fail_load("{}: \"high_freq_factor\" {} must be above \"low_freq_factor\" {}", rope.where(),
              s.high_factor, s.low_factor);
  return s;
}

// Older files have "rope_theta" beside "rope_scaling".
Rope read_rope(const Fields& config, int head_dim, int max_context, double default_theta) {
  const Fields rope = rope_fields(config);
  Rope out{.theta = static_cast<float>(default_theta),
           .dim = head_dim,
           .scaling = read_scaling(config, rope, max_context)};
  for (const Fields* holder : {&config, &rope})
    if (holder->has("rope_theta")) out.theta = need_rope_number(*holder, "rope_theta");
  return out;
}

int read_kv_heads(const Fields& config, int heads, const Defaults& defaults) {
  constexpr std::string_view kKey = "num_key_value_heads";
  const bool silent = !config.json().contains(kKey);
  const int fallback = silent && defaults.kv_heads ? defaults.kv_heads : heads;
  const int kv_heads = get_int(config, kKey, fallback, 1, heads);
  if (heads % kv_heads)
    fail_load("{}: \"num_attention_heads\" {} is not a multiple of \"{}\" {}", config.where(),
              heads, kKey, kv_heads);
  return kv_heads;
}

int read_head_dim(const Fields& config, int hidden, int heads, const Defaults& defaults) {
  constexpr std::string_view kKey = "head_dim";
  const bool silent = !config.json().contains(kKey);
  const bool divided = !config.has(kKey) && !(silent && defaults.head_dim);
  if (divided && hidden % heads)
    fail_load(
        "{}: \"hidden_size\" {} is not a multiple of \"num_attention_heads\" {}, and there is no "
        "\"head_dim\"",
        config.where(), hidden, heads);
  const int fallback = divided ? hidden / heads : defaults.head_dim;
  const int head_dim = get_int(config, kKey, fallback, 1, kMaxHeadDim);
  if (head_dim % 2) fail_load("{}: \"head_dim\" {} is odd", config.where(), head_dim);
  return head_dim;
}

Gqa read_gqa(const Fields& config, int hidden, int max_context, const Defaults& defaults) {
  Gqa m{.heads = need_int(config, "num_attention_heads", 1, kMaxHeads)};
  m.kv_heads = read_kv_heads(config, m.heads, defaults);
  m.head_dim = read_head_dim(config, hidden, m.heads, defaults);
  m.rope = read_rope(config, m.head_dim, max_context, defaults.rope_theta);
  return m;
}

void check_act(const Fields& config) {
  const auto act = config.get<std::string>("hidden_act", "silu");
  if (act != "silu" && act != "swish")
    fail_load("{}: \"hidden_act\" \"{}\" is not supported; known: silu", config.where(),
              escaped(act));
}

}  // namespace

std::optional<int> int_in(const Json& value, int min, int max) {
  if (!value.is_number_integer()) return std::nullopt;
  // get<int64_t>() would wrap around from 2^63 on.
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT_MAX}) return std::nullopt;
  const auto number = value.get<int64_t>();
  if (number < min || number > max) return std::nullopt;
  return static_cast<int>(number);
}

int need_int(const Fields& config, std::string_view key, int min, int max) {
  if (!config.has(key)) fail_load("{}: missing key \"{}\"", config.where(), key);
  const Json& value = config.json().at(std::string(key));
  if (!value.is_number_integer())
    fail_load("{}: key \"{}\" must be an integer, is {}", config.where(), key,
              value.dump().substr(0, 80));
  const std::optional<int> number = int_in(value, min, max);
  if (!number)
    fail_load("{}: \"{}\" is {}, must be in [{}, {}]", config.where(), key, value.dump(), min, max);
  return *number;
}

int get_int(const Fields& config, std::string_view key, int fallback, int min, int max) {
  if (config.has(key)) return need_int(config, key, min, max);
  if (fallback < min || fallback > max)
    fail_load("{}: \"{}\" is missing, and the family's default {} is not in [{}, {}]",
              config.where(), key, fallback, min, max);
  return fallback;
}

double get_number(const Fields& config, std::string_view key, double fallback, double min,
                  double max) {
  if (!config.has(key)) return fallback;
  const Json& value = config.json().at(std::string(key));
  if (!value.is_number())
    fail_load("{}: key \"{}\" must be a number, is {}", config.where(), key,
              value.dump().substr(0, 80));
  const auto number = value.get<double>();
  if (!(number >= min && number <= max))
    fail_load("{}: \"{}\" is {}, must be in [{}, {}]", config.where(), key, number, min, max);
  return number;
}

float need_rope_number(const Fields& config, std::string_view key) {
  if (!config.has(key)) fail_load("{}: missing key \"{}\"", config.where(), key);
  return static_cast<float>(get_number(config, key, 0, 1e-3, 1e12));
}

Fields rope_fields(const Fields& config) {
  const Fields rope = config.child(config.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  for (const auto& [key, value] : rope.json().items())
    if (value.is_object())
      fail_load("{}: \"{}\": rope that differs between layers is not supported", rope.where(),
                escaped(key));
  for (const Fields* holder : {&config, &rope})
    if (const double part = get_number(*holder, "partial_rotary_factor", 1, 0, 1); part != 1.0)
      fail_load("{}: \"partial_rotary_factor\" {} is not supported", holder->where(), part);
  return rope;
}

ModelSpec without_mixers(const Fields& config, const Defaults& defaults) {
  check_act(config);
  ModelSpec spec;
  spec.hidden = need_int(config, "hidden_size", 1, kMaxWidth);
  spec.vocab = need_int(config, "vocab_size", 1, kMaxVocab);
  spec.max_context =
      get_int(config, "max_position_embeddings", defaults.max_context, 1, kMaxContext);
  spec.eps = static_cast<float>(get_number(config, "rms_norm_eps", defaults.eps, 0, 1));
  spec.tied_head = config.get<bool>("tie_word_embeddings", defaults.tied_head);
  const Layer layer{.mixer = Gqa{},
                    .ffn = Dense{.width = need_int(config, "intermediate_size", 1, kMaxWidth)}};
  const int layers = need_int(config, "num_hidden_layers", 1, kMaxLayers);
  spec.layers.assign(static_cast<size_t>(layers), layer);
  return spec;
}

ModelSpec llama_like(const Fields& config, const Defaults& defaults) {
  ModelSpec spec = without_mixers(config, defaults);
  const Gqa gqa = read_gqa(config, spec.hidden, spec.max_context, defaults);
  for (Layer& layer : spec.layers) layer.mixer = gqa;
  return spec;
}

int qwen_window(const Fields& config) {
  constexpr std::string_view kKey = "sliding_window";
  if (!config.get<bool>("use_sliding_window", false)) return 0;
  if (config.has(kKey)) return need_int(config, kKey, 1, kMaxContext);
  return config.json().contains(kKey) ? 0 : 4096;
}

void qwen_windows(ModelSpec& spec, const Fields& config) {
  const int window = qwen_window(config);
  if (window == 0) return;
  const int first_layer = get_int(config, "max_window_layers", 28, 0, kMaxContext);
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

}  // namespace skiff::model

// model/family.h -- how a checkpoint's config.json and tensor names become a ModelSpec and its
// weights. A family is one short file in families/ plus one line in registry.cc.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/spec.h"
#include "base/json.h"

namespace skiff {

// How a checkpoint writes a linear weight: torch [out, in], Paddle [in, out].
enum class Layout { kTorch, kPaddle };

// Says which checkpoint tensors fill a slot of ModelWeights. `pattern` has {} for the layer and,
// for experts, a second {} for the expert (an expert slot whose pattern has one {} is a single
// tensor [experts, out, in]); several patterns joined by '|' are stacked along the output axis
// (q|k|v, gate|up). A pattern names a module, whose tensors are PATTERN.weight and, where the
// spec has one, PATTERN.bias; or a tensor in full. Rules are tried in order: a slot may have
// several spellings, the first whose tensors are all present wins. The rule that fills "embed"
// settles the layout, and rules of the other layout are then left out.
struct NameRule {
  std::string_view slot;     // "embed", "norm", "head", or a field of LayerWeights
  std::string_view pattern;  // "model.layers.{}.self_attn.q_proj|...k_proj|...v_proj"
  Layout layout = Layout::kTorch;
};

struct Family {
  std::string_view arch;                        // config.json "architectures"[0]
  ModelSpec (*describe)(const Fields& config);  // may throw LoadError
  std::vector<NameRule> (*names)();
};

// What families share; each family edits the result.
ModelSpec llama_like(const Fields& config);
// Defaults that differ between families where config.json is silent.
struct Defaults {
  int head_dim = 0;  // 0: hidden_size / num_attention_heads
  double rope_theta = 1e4, eps = 1e-6;
  bool tied_head = false;
};
ModelSpec llama_like(const Fields& config, const Defaults& defaults);
// An integer within [min, max]; LoadError naming the key otherwise.
int need_int(const Fields& config, std::string_view key, int min, int max);
int get_int(const Fields& config, std::string_view key, int fallback, int min, int max);
// Bounds of sizes: with them no count of parameters or bytes in a plan overflows 63 bits.
constexpr int kMaxWidth = 1 << 18, kMaxVocab = 1 << 24, kMaxLayers = 1 << 10, kMaxExperts = 1 << 11;
// `edit` on the attention of every layer.
template <class Edit>
void for_each_gqa(ModelSpec& spec, Edit edit) {
  for (Layer& layer : spec.layers) edit(std::get<Gqa>(layer.mixer));
}
// Qwen's windows: use_sliding_window and sliding_window, on the layers that layer_types calls
// "sliding_attention" or, without it, from max_window_layers on (default `first_layer`).
void qwen_windows(ModelSpec& spec, const Fields& config, int first_layer);

// The tensor names that nearly every family shares, torch spelling and Paddle spelling.
std::vector<NameRule> hf_names();

const Family* find_family(std::string_view arch);  // nullptr if unknown
std::vector<std::string_view> known_architectures();

}  // namespace skiff

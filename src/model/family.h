// model/family.h -- how a checkpoint's config.json and tensor names become a ModelSpec and its
// weights. A family is one short file in families/ plus one line in registry.cc.
#pragma once
#include <optional>
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

// What a family assumes where config.json does not have a key: the defaults of its configuration
// class in Hugging Face transformers. Sizes that only describe the stored weights (hidden_size,
// vocab_size, num_hidden_layers, ...) have no default: without them a file is incomplete.
struct Defaults {
  int max_context;
  int kv_heads = 0;  // 0: num_attention_heads, which an explicit null always means
  int head_dim = 0;  // 0: hidden_size / num_attention_heads, which an explicit null always means
  double rope_theta = 1e4, eps = 1e-6;
  bool tied_head = false;
};
// What families share; each family edits the result.
ModelSpec llama_like(const Fields& config, const Defaults& defaults);
// A JSON integer within [min, max], or nothing.
std::optional<int> int_in(const Json& value, int min, int max);
// An integer within [min, max]; LoadError naming the key otherwise. The fallback is held to the
// same bounds.
int need_int(const Fields& config, std::string_view key, int min, int max);
int get_int(const Fields& config, std::string_view key, int fallback, int min, int max);
// A number within [min, max]; LoadError naming the key otherwise.
double get_number(const Fields& config, std::string_view key, double fallback, double min,
                  double max);
// Bounds of sizes: with them no count of parameters or bytes in a plan overflows 63 bits.
constexpr int kMaxWidth = 1 << 18, kMaxVocab = 1 << 24, kMaxLayers = 1 << 10, kMaxExperts = 1 << 11;
// `edit` on the attention of every layer.
template <class Edit>
void for_each_gqa(ModelSpec& spec, Edit edit) {
  for (Layer& layer : spec.layers) edit(std::get<Gqa>(layer.mixer));
}
// Qwen's window: 0 unless use_sliding_window; then sliding_window, which is 4096 where the file
// does not have it and none where it is null.
int qwen_window(const Fields& config);
// qwen_window() on the layers that layer_types calls "sliding_attention" or, without it, from
// max_window_layers (default 28) on.
void qwen_windows(ModelSpec& spec, const Fields& config);

// The tensor names that nearly every family shares, torch spelling and Paddle spelling.
std::vector<NameRule> hf_names();

const Family* find_family(std::string_view arch);  // nullptr if unknown
std::vector<std::string_view> known_architectures();

}  // namespace skiff

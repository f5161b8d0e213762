// model/family.h -- a model family: how config.json becomes a ModelSpec, and which tensors hold its
// weights. A family is one short file in families/ and one line in registry.cc.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "arch/spec.h"
#include "base/json.h"
#include "model/names.h"

namespace skiff::model {

struct Family {
  std::string_view arch;                        // config.json "architectures"[0]
  ModelSpec (*describe)(const Fields& config);  // may throw LoadError
  std::vector<NameRule> (*names)();
};

// The values that a family assumes for keys that config.json does not have: the defaults of its
// configuration class in Hugging Face transformers. Sizes that only describe the stored weights
// (hidden_size, vocab_size, num_hidden_layers, ...) have no default: a file must have them.
struct Defaults {
  int max_context;
  int kv_heads = 0;  // 0: num_attention_heads, which an explicit null always means
  int head_dim = 0;  // 0: hidden_size / num_attention_heads, which an explicit null always means
  double rope_theta = 1e4, eps = 1e-6;
  bool tied_head = false;
};
// Reads what most families share; each family edits the result.
ModelSpec llama_like(const Fields& config, const Defaults& defaults);
// Reads the part of it that is no attention: every layer's mixer is an empty Gqa.
ModelSpec without_mixers(const Fields& config, const Defaults& defaults);
// Returns a JSON integer within [min, max], or nothing.
std::optional<int> int_in(const Json& value, int min, int max);
// Both return an integer within [min, max] and throw a LoadError that names the key otherwise. The
// fallback must be within the bounds, too.
int need_int(const Fields& config, std::string_view key, int min, int max);
int get_int(const Fields& config, std::string_view key, int fallback, int min, int max);
// Returns a number within [min, max]; throws a LoadError that names the key otherwise.
double get_number(const Fields& config, std::string_view key, double fallback, double min,
                  double max);
// Returns a number that angles are divided by; within its bounds every angle is finite in float.
float need_rope_number(const Fields& config, std::string_view key);
// Returns the object with everything about rope, "rope_scaling" or the newer "rope_parameters".
// Throws where it says that rope differs between layers or covers a part of each head.
Fields rope_fields(const Fields& config);
// Within these bounds no count of parameters or of bytes in a memory plan overflows 63 bits.
constexpr int kMaxWidth = 1 << 18, kMaxVocab = 1 << 24, kMaxLayers = 1 << 10, kMaxExperts = 1 << 11;
constexpr int kMaxContext = 1 << 27, kMaxHeads = 1 << 10, kMaxHeadDim = 1 << 10;
// Applies `edit` to the attention of every layer that has this kind of it.
template <class Edit>
void for_each_gqa(ModelSpec& spec, Edit edit) {
  for (Layer& layer : spec.layers)
    if (auto* gqa = std::get_if<Gqa>(&layer.mixer)) edit(*gqa);
}
// Returns Qwen's window: 0 without use_sliding_window, else sliding_window, whose default is 4096;
// null stands for 0.
int qwen_window(const Fields& config);
// Sets qwen_window() on the layers that layer_types calls "sliding_attention" or, where there is no
// layer_types, on those from max_window_layers (default 28) on.
void qwen_windows(ModelSpec& spec, const Fields& config);

}  // namespace skiff::model

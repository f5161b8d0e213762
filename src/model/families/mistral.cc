// Mistral 7B and its heirs: Llama with a sliding window on every layer.
#include "model/family.h"

namespace skiff::model {
namespace {

ModelSpec describe(const Fields& config) {
  ModelSpec spec = llama_like(config, {.max_context = 131072, .kv_heads = 8});
  // A null stands for no window; a file without the key stands for 4096, as in the first model.
  const int silent = config.json().contains("sliding_window") ? 0 : 4096;
  const int window =
      config.has("sliding_window") ? need_int(config, "sliding_window", 1, 1 << 30) : silent;
  for_each_gqa(spec, [&](Gqa& m) { m.window = window; });
  return spec;
}

}  // namespace

extern const Family kMistral{"MistralForCausalLM", describe, hf_names};

}  // namespace skiff::model

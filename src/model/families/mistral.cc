// Mistral 7B and its heirs: Llama with a sliding window on every layer.
#include "model/family.h"

namespace skiff {
namespace {

ModelSpec describe(const Fields& config) {
  ModelSpec spec = llama_like(config);
  // null says "no window"; only a file that does not speak of it means the first model's 4096.
  const int silent = config.json().contains("sliding_window") ? 0 : 4096;
  const int window = get_int(config, "sliding_window", silent, 1, 1 << 30);
  for_each_gqa(spec, [&](Gqa& m) { m.window = window; });
  return spec;
}

}  // namespace

extern const Family kMistral{"MistralForCausalLM", describe, hf_names};

}  // namespace skiff

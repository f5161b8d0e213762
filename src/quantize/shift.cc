#include "quantize/shift.h"

#include <algorithm>
#include <array>

#include "base/load_error.h"
#include "quantize/inputs.h"

namespace skiff::quantize {
namespace {

// Models to which "attention_bias" true gives biases of queries, keys, values and the output.
constexpr std::array<std::string_view, 3> kSwitched = {"LlamaForCausalLM", "Qwen3ForCausalLM",
                                                       "Qwen3MoeForCausalLM"};

bool switched(const ModelSpec& spec) {
  return std::ranges::find(kSwitched, spec.arch) != kSwitched.end();
}

}  // namespace

void check_shift(const ModelSpec& spec) {
  if (switched(spec)) return;
  for (const Layer& layer : spec.layers) {
    const auto* attention = std::get_if<Gqa>(&layer.mixer);
    if (!attention || !attention->qkv_bias || !attention->out_bias)
      fail_load(
          "--shift: the attention of {} has no biases of its values and its output, which would "
          "take up the shift: leave it out",
          spec.arch);
  }
}

void add_shift_biases(const LayerMap& map, LayerValues& values) {
  for (const char* slot : {"qkv", "out"})
    for (const size_t unit : units_of(*map.linear(slot)))
      values.biases[unit].resize(static_cast<size_t>(map.units[unit].out));
}

void note_shift_biases(const ModelSpec& spec, OrderedJson& config) {
  if (switched(spec)) config["attention_bias"] = true;
}

}  // namespace skiff::quantize

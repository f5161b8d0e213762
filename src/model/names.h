// model/names.h -- which checkpoint tensors fill which slot.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace skiff::model {

// How a checkpoint stores a linear weight: torch and GGUF, which has names of its own, as [out,
// in], Paddle as [in, out].
enum class Layout { kTorch, kPaddle, kGguf };

// Names the checkpoint tensors that fill a slot. `pattern` has {} for the layer and, for experts, a
// second {} for the expert; an expert slot whose pattern has only one {} is a single tensor
// [experts, out, in]. Patterns joined by '|' are stacked along the output axis (q|k|v, gate|up). A
// pattern names a tensor, or a module whose tensors are PATTERN.weight and, where the spec has one,
// PATTERN.bias. A slot may have several rules: they are tried in order, and the first whose tensors
// are all present wins. The rule that fills "embed" decides the layout; rules of the other layout
// are ignored.
struct NameRule {
  std::string_view slot;     // Slot::name: "embed", "qkv", ...
  std::string_view pattern;  // "model.layers.{}.self_attn.q_proj|...k_proj|...v_proj"
  Layout layout = Layout::kTorch;
  // What tensors have in place of the prefix "model." that patterns have. It is empty in files of a
  // class without a head, as Qwen3Model.
  std::string_view base = "model.";
};

// Returns one of the patterns of a rule as the checkpoint has it.
std::string stored_pattern(const NameRule& rule, std::string_view pattern);

// The tensor names that nearly every family shares, in the spellings of torch, Paddle and GGUF.
std::vector<NameRule> hf_names();

}  // namespace skiff::model

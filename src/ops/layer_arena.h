// ops/layer_arena.h -- what the operations of a layer take from the arena, as far as all backends
// do it alike.
#pragma once
#include <functional>

#include "ops/ops.h"

namespace skiff {

// The tensors of a Routing of `rows` tokens, in the arena.
Routing take_routing(Arena& arena, int64_t rows, const Router& router);

// What Ops::arena_bytes() is where gated_linear() takes its gate_up from the arena, route() its
// result, and experts() what `experts` says.
size_t layer_arena_bytes(const FeedForward& ffn, int64_t rows, DType act,
                         const std::function<size_t(const Moe&)>& experts);

}  // namespace skiff

// ops/layer_arena.h -- the arena memory that the operations of a layer take in every backend.
#pragma once
#include <functional>

#include "ops/ops.h"

namespace skiff {

// Takes the tensors of a Routing for `rows` tokens from the arena.
Routing take_routing(Arena& arena, int64_t rows, const Router& router);

// Returns Ops::arena_bytes() for backends in which gated_linear() takes its gate_up from the arena,
// route() its result, and experts() the bytes that `experts` returns.
size_t layer_arena_bytes(const FeedForward& ffn, int64_t rows, DType act,
                         const std::function<size_t(const Moe&)>& experts);

}  // namespace skiff

#include "ops/layer_arena.h"

#include <algorithm>

namespace skiff {
namespace {

size_t gated_bytes(int64_t rows, int64_t width, DType act) {
  return Arena::size_of(act, rows * 2 * width);
}

// Returns the bytes of the tensors that take_routing() takes.
size_t routing_bytes(int64_t rows, const Router& router) {
  const int64_t copies = rows * router.per_token();
  return 2 * Arena::size_of(DType::kI32, copies) + Arena::size_of(DType::kF32, copies) +
         Arena::size_of(DType::kI32, router.total() + 1);
}

struct TakenBytes {
  int64_t rows;
  DType act;
  const std::function<size_t(const Moe&)>& experts;

  size_t operator()(const Dense& f) const { return gated_bytes(rows, f.width, act); }
  size_t operator()(const Moe& f) const {
    const size_t shared = f.shared_width ? gated_bytes(rows, f.shared_width, act) : 0;
    return routing_bytes(rows * f.sharers, f.router) + std::max(experts(f), shared);
  }
};

}  // namespace

Routing take_routing(Arena& arena, int64_t rows, const Router& router) {
  const int64_t each = router.per_token();
  return {.expert = arena.take(DType::kI32, {rows, each}),
          .weight = arena.take(DType::kF32, {rows, each}),
          .order = arena.take(DType::kI32, {rows * each}),
          .expert_start = arena.take(DType::kI32, {router.total() + 1}),
          .always = router.always,
          .experts = router.experts};
}

size_t layer_arena_bytes(const FeedForward& ffn, int64_t rows, DType act,
                         const std::function<size_t(const Moe&)>& experts) {
  return std::visit(TakenBytes{rows, act, experts}, ffn);
}

}  // namespace skiff

// Tests prepared_bytes and arena_bytes: a backend takes no more memory than they state; and
// scratch_bytes, which refuses models.
#include "base/load_error.h"
#include "ops/suite/suite.h"
#include "tensor/device_memory.h"

namespace skiff::suite {
namespace {

struct Ready {
  Linear linear;
  Buffer owner;
};
Ready ready_weight(Ops& ops, Workspace& ws, const WeightShape& shape, DType dtype) {
  Linear plain{.experts = shape.experts};
  plain.weight = shape.experts ? ws.random(dtype, {shape.experts, shape.out, shape.in}, 0.3)
                               : ws.random(dtype, {shape.out, shape.in}, 0.3);
  if (shape.bias) plain.bias = ws.random(DType::kF32, {shape.out});
  Ready ready;
  ready.linear = ops.prepare(plain, {dtype}, &ready.owner);
  return ready;
}

TEST_P(OpSuite, PreparedBytesAreThoseOfTheBuffer) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t out : {1, 15, 16, 17, 31, 32, 33, 64, 100}) {
      Workspace ws(static_cast<uint64_t>(out));
      for (const int64_t in : {1, 2, 31, 32, 33, 64, 129}) {
        for (const int64_t experts : {0, 1, 3}) {
          for (const bool bias : {false, true}) {
            const WeightShape shape{.experts = experts, .out = out, .in = in, .bias = bias};
            const Ready weight = ready_weight(*ops, ws, shape, dtype);
            EXPECT_EQ(ops->prepared_bytes(shape, {.dtype = dtype}), weight.owner.size())
                << experts << " x " << out << " x " << in << " bias " << bias << " " << name(dtype);
          }
        }
      }
    }
  }
}

// The operations of one feed-forward block, in a decoder's order.
struct Block {
  Ops& ops;
  Workspace& ws;
  DType act;
  int64_t rows, hidden;
  Arena& arena;

  void gated(int64_t width) const {
    const Ready w = ready_weight(ops, ws, {.out = 2 * width, .in = hidden}, act);
    ops.gated_linear(ws.output(act, {rows, width}), ws.random(act, {rows, hidden}), w.linear,
                     Act::kSilu, arena);
  }
  void operator()(const Dense& f) const { gated(f.width); }
  void operator()(const Moe& f) const {
    const int64_t all = f.router.total();
    const Ready up =
        ready_weight(ops, ws, {.experts = all, .out = int64_t{2} * f.width, .in = hidden}, act);
    const Ready down = ready_weight(ops, ws, {.experts = all, .out = hidden, .in = f.width}, act);
    const int64_t routed = rows * f.sharers;
    const Tensor logits = ws.random(DType::kF32, {routed, f.router.experts});
    const Routing routing = ops.route(logits, {}, f.router, arena);
    ops.experts(ws.output(act, {routed, hidden}), ws.random(act, {routed, hidden}), routing,
                up.linear, down.linear, f.act, arena);
    if (f.shared_width) gated(f.shared_width);
  }
};

FeedForward random_block(Rng& rng) {
  const int width = 1 + rng.below(70);
  if (rng.below(3) == 0) return Dense{.width = width};
  const int experts = 1 + rng.below(20);
  return Moe{.router = {.experts = experts,
                        .top_k = 1 + rng.below(std::min(experts, 8)),
                        .always = rng.below(3)},
             .width = width,
             .shared_width = rng.below(2) * (1 + rng.below(200)),
             .sharers = 1 + rng.below(2) * rng.below(4)};
}

TEST_P(OpSuite, LayersKeepToTheArenaThatIsStated) {
  constexpr size_t kSpare = 1 << 20;  // so that what is taken beyond the bound is seen
  Rng rng(11);
  for (int i = 0; i < 60; ++i) {
    const DType act = i % 2 ? DType::kBF16 : DType::kF32;
    const int64_t rows = i < 6 ? 1 : 1 + rng.below(90), hidden = 8 * (1 + rng.below(12)) - i % 3;
    const FeedForward ffn = random_block(rng);
    const size_t stated = ops->arena_bytes(ffn, hidden, rows, act);
    SCOPED_TRACE(fmt::format("case {}: {} rows, hidden {}, {}", i, rows, hidden, name(act)));
    Arena arena(Buffer::pinned(stated + kSpare));
    Workspace ws(static_cast<uint64_t>(i));
    std::visit(Block{*ops, ws, act, rows, hidden, arena}, ffn);
    finish();
    EXPECT_LE(arena.peak(), stated);
    if (ops->device() == Device{}) {
      EXPECT_EQ(arena.peak(), stated) << "memory is planned that nobody takes";
    }
    EXPECT_LE(stated, ops->arena_bytes(ffn, hidden, rows + 5, act)) << "fewer rows take more";
  }
}

// What scratch_bytes() throws for a model of one such layer.
std::string refusal_of(const Ops& ops, const Layer& layer, int hidden = 64) {
  ModelSpec spec;
  spec.hidden = hidden;
  spec.vocab = 97;
  spec.layers = {layer};
  try {
    ops.scratch_bytes(
        {.spec = spec, .max_rows = 8, .max_logit_rows = 8, .max_seqs = 8, .max_context = 64});
  } catch (const LoadError& e) {
    return e.what();
  }
  return {};
}

// Memory is planned before weights are read: so a model for which a device has no kernels is
// refused in one line, whatever its config.json says.
TEST(CudaModels, ShapesWithoutKernelsAreRefused) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
  const std::unique_ptr<Ops> ops = make_cuda_ops({});
  const auto gqa = [](int dim) { return Gqa{.heads = 2, .kv_heads = 1, .head_dim = dim}; };
  const auto mla = [](int rank, int rope) {
    return Mla{.heads = 2, .kv_rank = rank, .nope_dim = 8, .rope_dim = rope, .v_dim = 8};
  };
  const auto moe = [](int experts, int always) {
    return Moe{.router = {.experts = experts, .top_k = 1, .always = always}, .width = 8};
  };
  const Dense dense{.width = 8};
  EXPECT_EQ(refusal_of(*ops, {gqa(256), moe(510, 2)}, 16'384), "");
  EXPECT_EQ(refusal_of(*ops, {mla(1'024, 256), dense}), "");
  const auto expect = [&](const std::string& text, const Layer& layer, int hidden = 64) {
    EXPECT_NE(refusal_of(*ops, layer, hidden).find(text), std::string::npos) << text;
  };
  expect("heads of 512 elements", {gqa(512), dense});
  expect("512 experts and 1 that are always on", {gqa(64), moe(512, 1)});
  expect("a latent of 1026 + 64 elements", {mla(1'026, 64), dense});
  expect("a latent of 512 + 258 elements", {mla(512, 258), dense});
  expect("norms of 131072 elements", {gqa(64), dense}, 131'072);
}

}  // namespace
}  // namespace skiff::suite

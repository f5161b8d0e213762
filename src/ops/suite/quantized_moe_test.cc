// experts of quantized weights, in every format that the backend multiplies.
#include <algorithm>

#include "ops/suite/formats.h"

namespace skiff::suite {
namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;

struct QuantizedMoe {
  int tokens, hidden, width;
  DType act;
  Router router;
};

// What a down projection's input may become when it is rounded: within half a step of its dtype.
void round_inner(std::vector<Approx>& inner, const Linear& down, int64_t expert) {
  if (!down.format.input) return;
  const InputFormat& format = *down.format.input;
  const bool groups = format.scales == InputFormat::kGroups;
  const size_t step = groups ? 128 : inner.size();
  for (size_t begin = 0; begin < inner.size(); begin += step) {
    const size_t end = std::min(inner.size(), begin + step);
    double most = groups ? 1e-4 : 0;
    for (size_t i = begin; i < end; ++i)
      most = std::max(most, std::abs(inner[i].value) + inner[i].bound);
    const double codes = format.dtype == DType::kI8 ? 127 : 448;
    const bool fixed = format.scales == InputFormat::kStatic;
    const double scale = fixed ? at(down.input_scale, expert, 0) : most / codes;
    for (size_t i = begin; i < end; ++i) {
      Approx& h = inner[i];
      // Half of an integer's step; of a float's, which is 1/8 of its power of two, at least 2^-9.
      const double half = format.dtype == DType::kI8
                              ? scale / 2
                              : std::max(scale * 0x1p-10, (std::abs(h.value) + h.bound) * 0x1p-4);
      h.bound += half * (1 + 0x1p-10);
      if (fixed) h.value = std::clamp(h.value, -scale * (codes + 1), scale * codes);
    }
  }
}

void add_quantized_expert(std::vector<Approx>& out, const std::vector<double>& x, double weight,
                          const Linear& gate_up, const Linear& down, int64_t expert,
                          const QuantizedMoe& c, bool device) {
  std::vector<Approx> inner;
  const std::vector<double> met = rounded_input(x, gate_up, expert);
  for (int64_t i = 0; i < c.width; ++i) {
    const Approx gate = quantized_product(met, gate_up, expert, i, device);
    const Approx up = quantized_product(met, gate_up, expert, c.width + i, device);
    const double on = gate.value / (1 + std::exp(-gate.value)), h = on * up.value;
    // Gate, up and what lies between the products may be rounded to act.
    const double round = round_off(c.act);
    const double gate_bound = gate.bound + round * (std::abs(gate.value) + gate.bound);
    const double up_bound = up.bound + round * (std::abs(up.value) + up.bound);
    inner.push_back(
        {h, 1.2 * gate_bound * (std::abs(up.value) + up_bound) + std::abs(on) * up_bound +
                16 * kF32Round * std::abs(gate.value * up.value) + round * std::abs(h)});
  }
  round_inner(inner, down, expert);
  for (size_t o = 0; o < out.size(); ++o) {
    std::vector<double> values;
    values.reserve(inner.size());
    for (const Approx& h : inner) values.push_back(h.value);
    Approx y = quantized_product(values, down, expert, static_cast<int64_t>(o), device);
    for (size_t i = 0; i < inner.size(); ++i) {
      const Entry d = weight_entry(down, expert, static_cast<int64_t>(o), static_cast<int64_t>(i));
      y.bound += d.size * inner[i].bound * 1.1;
    }
    out[o].value += weight * y.value;
    out[o].bound +=
        weight * (y.bound + (c.router.per_token() + 4) * kF32Round * (std::abs(y.value) + y.bound) +
                  round_off(c.act) * (std::abs(y.value) + y.bound));
  }
}

void quantized_experts(Ops& ops, const WeightFormat& format, const QuantizedMoe& c) {
  SCOPED_TRACE(fmt::format("{}: tokens {} hidden {} width {} act {}", describe(format), c.tokens,
                           c.hidden, c.width, name(c.act)));
  const int all = c.router.total();
  Workspace ws(static_cast<uint64_t>(c.tokens + c.hidden));
  const Tensor x = ws.random(c.act, {c.tokens, c.hidden}, 0.5);
  const Linear gate_up =
      random_weight(ws, format, {.experts = all, .out = int64_t{2} * c.width, .in = c.hidden});
  const Linear down = random_weight(ws, format, {.experts = all, .out = c.hidden, .in = c.width});
  const Tensor logits = ws.random(kF32, {c.tokens, c.router.experts}, 2);
  const Tensor out = ws.output(c.act, {c.tokens, c.hidden});
  Buffer own_gate_up, own_down;
  const Linear ready_gate_up = ops.prepare(gate_up, format, &own_gate_up);
  const Linear ready_down = ops.prepare(down, format, &own_down);
  EXPECT_EQ(
      own_gate_up.size(),
      ops.prepared_bytes({.experts = all, .out = int64_t{2} * c.width, .in = c.hidden}, format));
  EXPECT_EQ(own_down.size(),
            ops.prepared_bytes({.experts = all, .out = c.hidden, .in = c.width}, format));
  const FeedForward layer = Moe{.router = c.router, .width = c.width};
  Arena arena(Buffer::pinned(ops.arena_bytes(layer, c.hidden, c.tokens, c.act)));
  const Routing routing = ops.route(logits, {}, c.router, arena);
  ws.begin_op({out});
  ops.experts(out, x, routing, ready_gate_up, ready_down, Act::kSilu, arena);
  ws.end_op();
  const bool device = ops.device() != Device{};
  for (int64_t t = 0; t < c.tokens; t += std::max(1, c.tokens / 5)) {
    std::vector<Approx> want(static_cast<size_t>(c.hidden));
    for (int k = 0; k < c.router.per_token(); ++k)
      add_quantized_expert(want, row_of(x, t), routing.weight.row<float>(t)[k], gate_up, down,
                           routing.expert.row<int32_t>(t)[k], c, device);
    expect_near(out.row_range(t, 1),
                [&](int64_t, int64_t o) { return want[static_cast<size_t>(o)]; });
  }
}

TEST_P(OpSuite, QuantizedExperts) {
  for (const WeightFormat& format : quantized_formats()) {
    if (!ops->multiplies(format)) continue;
    for (const QuantizedMoe& c : {QuantizedMoe{1, 64, 48, kBF16, {.experts = 6, .top_k = 2}},
                                  {1, 1032, 328, kBF16, {.experts = 5, .top_k = 3}},
                                  {5, 66, 34, kF32, {.experts = 4, .top_k = 2}},
                                  {9, 256, 136, kBF16, {.experts = 3, .top_k = 1, .always = 1}},
                                  {70, 96, 32, kBF16, {.experts = 4, .top_k = 3}}})
      quantized_experts(*ops, format, c);
  }
}

// Experts of 10 to 90 rows in the mean, which a device multiplies in jobs of different sizes.
TEST_P(OpSuite, QuantizedExpertsOfSomeRows) {
  if (ops->device() == Device{}) GTEST_SKIP() << "the host computes a few tokens at a time";
  for (const WeightFormat& format : quantized_formats()) {
    if (!ops->multiplies(format)) continue;
    for (const int tokens : {20, 36, 80, 180})
      quantized_experts(*ops, format, {tokens, 320, 144, kBF16, {.experts = 4, .top_k = 2}});
  }
}

// So many tiles that a device deals them out whole. The last job of an expert has a few rows.
TEST_P(OpSuite, QuantizedExpertsOfManyTiles) {
  if (ops->device() == Device{}) GTEST_SKIP() << "the host computes a few tokens at a time";
  for (const WeightFormat& format : quantized_formats()) {
    if (!ops->multiplies(format)) continue;
    for (const QuantizedMoe& c :
         {QuantizedMoe{1'100, 128, 2'048, kBF16, {.experts = 4, .top_k = 2}},
          {1'130, 4'096, 48, kBF16, {.experts = 4, .top_k = 2}}})
      quantized_experts(*ops, format, c);
    if (format.block_in > 0) continue;
    // So many that it may take them by twos.
    for (const QuantizedMoe& c :
         {QuantizedMoe{2'201, 264, 2'048, kBF16, {.experts = 4, .top_k = 2}},
          {2'203, 4'096, 136, kBF16, {.experts = 4, .top_k = 2}}})
      quantized_experts(*ops, format, c);
  }
}

// Few rows by so many tiles that a device may take them by twos: whole ones, and tiles that several
// blocks share. Experts have 4, 12 and 17 rows in the mean. Such weights take long to fill, so
// there are some formats only.
TEST_P(OpSuite, QuantizedExpertsOfFewRowsByManyTiles) {
  if (ops->device() == Device{}) GTEST_SKIP() << "the host computes a few tokens at a time";
  const QuantizedMoe whole{128, 8'448, 128, kBF16, {.experts = 32, .top_k = 1}};
  const QuantizedMoe shared{128, 2'304, 1'024, kBF16, {.experts = 32, .top_k = 1}};
  const QuantizedMoe twelve{96, 22'528, 128, kBF16, {.experts = 8, .top_k = 1}};
  const QuantizedMoe seventeen{136, 22'528, 128, kBF16, {.experts = 8, .top_k = 1}};
  const WeightFormat four{DType::kI4, 1, 0, kBF16};
  const auto meets = [&](const WeightFormat& format, const QuantizedMoe& c) {
    if (ops->multiplies(format)) quantized_experts(*ops, format, c);
  };
  for (const QuantizedMoe& c : {whole, shared, twelve, seventeen}) meets(four, c);
  meets({DType::kU4, 1, 0, DType::kF16, DType::kU4}, shared);
  meets({DType::kI8, 1, 0, kBF16}, shared);
  meets({DType::kF8E4M3, 1, 0, kF32}, whole);
}

// Copies that take more memory, rounded, than a device has for rounded rows of activations.
TEST_P(OpSuite, QuantizedExpertsOfManyCopies) {
  if (ops->device() == Device{}) GTEST_SKIP() << "the host computes a few tokens at a time";
  for (const WeightFormat& format : quantized_formats()) {
    if (!format.input || format.block_out != 128 || !ops->multiplies(format)) continue;
    quantized_experts(*ops, format, {2'102, 4'096, 16, kF32, {.experts = 8, .top_k = 8}});
  }
}

// Returns whether weights and activations are of block_wise_fp8. Where matrices are whole blocks, a
// device may keep them as checkpoints have them.
bool is_blocks_of_float8(const WeightFormat& format) {
  return format.dtype == DType::kF8E4M3 && format.block_out == 128 && format.block_in == 128 &&
         format.input && format.input->dtype == DType::kF8E4M3 &&
         format.input->scales == InputFormat::kGroups;
}

// Experts without rows, of one, and of 3 to 230 in the mean. With a hidden size of 384 the down
// projection has an odd number of blocks, and with a width of 192 no matrix is of whole blocks.
TEST_P(OpSuite, QuantizedExpertsOfWholeBlocks) {
  if (ops->device() == Device{}) GTEST_SKIP() << "the host computes a few tokens at a time";
  for (const WeightFormat& format : quantized_formats()) {
    if (!is_blocks_of_float8(format) || !ops->multiplies(format)) continue;
    for (const int tokens : {1, 2, 7, 15, 35, 101, 333, 461})
      quantized_experts(*ops, format, {tokens, 256, 128, kBF16, {.experts = 4, .top_k = 2}});
    for (const QuantizedMoe& c : {QuantizedMoe{5, 256, 128, kBF16, {.experts = 24, .top_k = 2}},
                                  {1, 512, 256, kBF16, {.experts = 6, .top_k = 3, .always = 1}},
                                  {203, 512, 256, kBF16, {.experts = 6, .top_k = 3, .always = 1}},
                                  {77, 384, 256, kBF16, {.experts = 3, .top_k = 2}},
                                  {77, 256, 192, kBF16, {.experts = 3, .top_k = 2}},
                                  {21, 256, 384, kF32, {.experts = 3, .top_k = 2}}})
      quantized_experts(*ops, format, c);
  }
}

// So many tiles that a device may take them whole, or by twos, of either product.
TEST_P(OpSuite, QuantizedExpertsOfManyWholeBlocks) {
  if (ops->device() == Device{}) GTEST_SKIP() << "the host computes a few tokens at a time";
  for (const WeightFormat& format : quantized_formats()) {
    if (!is_blocks_of_float8(format) || !ops->multiplies(format)) continue;
    for (const QuantizedMoe& c :
         {QuantizedMoe{2'201, 256, 2'048, kBF16, {.experts = 4, .top_k = 2}},
          {2'203, 4'096, 128, kBF16, {.experts = 4, .top_k = 2}}})
      quantized_experts(*ops, format, c);
  }
}

void quantized_rows_are_independent(Ops& ops, const WeightFormat& format, const QuantizedMoe& c) {
  SCOPED_TRACE(fmt::format("{}: {} tokens", describe(format), c.tokens));
  Workspace ws(5);
  const int experts = c.router.total();
  const Tensor x = ws.random(kBF16, {c.tokens, c.hidden}),
               out = ws.output(kBF16, {c.tokens, c.hidden});
  const Tensor logits = ws.random(kF32, {c.tokens, c.router.experts});
  Buffer own_gate_up, own_down;
  const Linear gate_up = ops.prepare(
      random_weight(ws, format, {.experts = experts, .out = int64_t{2} * c.width, .in = c.hidden}),
      format, &own_gate_up);
  const Linear down =
      ops.prepare(random_weight(ws, format, {.experts = experts, .out = c.hidden, .in = c.width}),
                  format, &own_down);
  Arena arena(Buffer::pinned(1 << 22));
  expect_rows_independent(c.tokens, [&](int begin, int count) {
    arena.reset();
    const Routing routing = ops.route(logits.row_range(begin, count), {}, c.router, arena);
    const Tensor part = out.row_range(begin, count);
    ops.experts(part, x.row_range(begin, count), routing, gate_up, down, Act::kSilu, arena);
    RowBytes rows;
    for (int r = 0; r < count; ++r) rows.push_back(row_bytes(part, r));
    return rows;
  });
}

// The larger layer has jobs of every size.
TEST_P(OpSuite, QuantizedMoeRowsAreIndependent) {
  if (!ops->batch_invariant()) GTEST_SKIP() << "this backend promises less";
  const Router router = {.experts = 5, .top_k = 2};
  for (const WeightFormat& format : quantized_formats()) {
    if (!ops->multiplies(format)) continue;
    quantized_rows_are_independent(*ops, format, {19, 160, 48, kBF16, router});
    if (is_blocks_of_float8(format) && ops->device() != Device{})
      quantized_rows_are_independent(*ops, format, {181, 256, 128, kBF16, router});
  }
}

}  // namespace
}  // namespace skiff::suite

// The number of threads of a backend affects time only.
#include "ops/cpu/cpu_features.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/suite/attention.h"

namespace skiff::suite {
namespace {

void append(std::vector<std::byte>& all, const Tensor& t) {
  const std::vector<std::byte> bytes = all_bytes(t);
  all.insert(all.end(), bytes.begin(), bytes.end());
}

// One decoder layer and a sampler, with shapes that are worth sharing out; returns every result.
std::vector<std::byte> run_layer(Ops& ops, DType act, const std::vector<Piece>& pieces) {
  Workspace ws(17);
  const Gqa spec{.heads = 6, .kv_heads = 2, .head_dim = 32, .rope = {.dim = 32}};
  constexpr int kHidden = 136, kWidth = 80, kVocab = 350, kExperts = 7;
  const int64_t qkv_cols = 320, head_cols = 192;  // 10 and 6 heads
  Paged paged(ws, spec, act, 16, pieces);
  const int64_t rows = paged.batch.num_tokens;
  std::deque<Buffer> owners;
  const auto weight = [&](std::initializer_list<int64_t> shape) {
    Linear plain;
    plain.weight = ws.random(act, shape, 0.1);
    if (shape.size() == 3) plain.experts = *shape.begin();
    return ops.prepare(plain, {act}, &owners.emplace_back());
  };
  const Linear w_qkv = weight({qkv_cols, kHidden}), w_out = weight({kHidden, head_cols});
  const Linear w_router = weight({kExperts, kHidden}), w_head = weight({kVocab, kHidden});
  const Linear w_gate_up = weight({kExperts, int64_t{2} * kWidth, kHidden});
  const Linear w_down = weight({kExperts, kHidden, kWidth});
  const Tensor table = ws.random(act, {100, kHidden});
  const Norm norm{.weight = ws.random(DType::kF32, {kHidden})};

  const Tensor residual = ws.output(DType::kF32, {rows, kHidden});
  const Tensor x = ws.output(act, {rows, kHidden}), delta = ws.output(act, {rows, kHidden});
  const Tensor qkv = ws.output(act, {rows, qkv_cols}), heads = ws.output(act, {rows, head_cols});
  const Tensor score = ws.output(DType::kF32, {rows, kExperts});
  const Tensor half = ws.output(act, {rows, kHidden / 2});
  const Tensor logits = ws.output(DType::kF32, {rows, kVocab});
  Arena arena(Buffer({}, 32 << 20));
  ops.begin_step(paged.batch, {});
  ops.embed(residual, table, paged.batch.tokens);
  ops.add_norm(x, residual, {}, norm);
  ops.linear(qkv, x, w_qkv);
  ops.gqa_store(qkv, {}, {}, spec, paged.batch, paged.kv);
  ops.gqa_attend(heads, qkv.col_range(0, head_cols), spec, paged.batch, paged.kv);
  ops.linear(delta, heads, w_out);
  ops.add_norm(x, residual, delta, norm);
  ops.linear(score, x, w_router);
  const Routing routing = ops.route(score, {}, {.experts = kExperts, .top_k = 3}, arena);
  ops.experts(delta, x, routing, w_gate_up, w_down, Act::kSilu, arena);
  ops.add(delta, x);
  ops.gated_act(half, delta, Act::kGelu);
  ops.linear(logits, delta, w_head);

  const auto n = static_cast<size_t>(rows);
  std::vector<int64_t> seeds;
  for (int64_t r = 0; r < rows; ++r) seeds.push_back(r);
  const SampleBatch batch{.temperature = ws.floats(std::vector<float>(n, 1)),
                          .top_p = ws.floats(std::vector<float>(n, 0.95f)),
                          .min_p = ws.floats(std::vector<float>(n, 0.001f)),
                          .top_k = ws.ints(std::vector<int32_t>(n, 50)),
                          .seed = ws.longs(seeds),
                          .draw = ws.longs(seeds)};
  const Tensor ids = ws.output(DType::kI32, {rows}), rank = ws.output(DType::kI32, {rows});
  const Tensor logprob = ws.output(DType::kF32, {rows});
  const Tensor top_ids = ws.output(DType::kI32, {rows, 5}), top = ws.output(DType::kF32, {rows, 5});
  ops.sample(ids, logits, batch);
  ops.logprobs(logprob, rank, top_ids, top, logits, ids);

  std::vector<std::byte> all;
  for (const Tensor& t : {residual, x, delta, qkv, heads, score, half, logits, ids, rank, logprob,
                          top_ids, top, routing.weight, routing.expert}) {
    append(all, t);
  }
  return all;
}

TEST(OpThreads, NumberDoesNotShow) {
  for (const cpu::Isa isa : cpu::available_isas()) {
    const auto run = [&](int threads, DType act, const std::vector<Piece>& pieces) {
      return run_layer(*make_cpu_ops(CpuOptions{.threads = threads, .isa = isa}), act, pieces);
    };
    for (DType act : {DType::kF32, DType::kBF16}) {
      for (const std::vector<Piece>& pieces :
           {std::vector<Piece>{{0, 70}, {33, 1}, {5, 0}, {200, 1}, {64, 7}},
            {{130, 1}},
            {{3, 1}, {4, 1}, {15, 1}, {16, 1}, {17, 1}}}) {
        const std::vector<std::byte> alone = run(1, act, pieces);
        for (int threads : {3, 4, 0}) {
          EXPECT_TRUE(run(threads, act, pieces) == alone)
              << threads << " threads, " << name(act) << ", isa " << static_cast<int>(isa);
        }
      }
    }
  }
}

}  // namespace
}  // namespace skiff::suite

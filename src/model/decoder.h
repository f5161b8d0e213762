// model/decoder.h -- the one forward pass, for every family and every backend.
#pragma once
#include <span>

#include "arch/spec.h"
#include "comm/communicator.h"
#include "model/weights.h"
#include "ops/ops.h"

namespace skiff::model {

// What a block adds to the residual. Where `owed` is set, `rows` is one rank's part of a sum over
// that group. The caller reduces it, so that the reduction can fuse with the norm that follows.
struct Delta {
  Tensor rows;
  comm::Communicator* owed = nullptr;
};

// What a forward pass leaves in the arena.
struct Forward {
  Tensor hidden;  // [batch.num_tokens, hidden] act: every row behind the last norm
  Tensor logits;  // [batch.out_rows, head_rows()] f32; empty if the spec has no head
};

// A Decoder holds no state between steps. Weights, spec, ops and mesh must outlive it.
class Decoder {
 public:
  // `act`: dtype of activations, kF32 or kBF16; the residual stream is always f32.
  Decoder(const ModelSpec& spec, const ModelWeights& weights, Ops& ops, comm::Mesh& mesh,
          DType act);

  // Writes this step's keys and values to kv (one KvLayer per layer). Requires that
  // Ops::begin_step(batch) has been called.
  Forward forward(const RaggedBatch& batch, std::span<const KvLayer> kv, Arena& arena);

  // Returns the most bytes that forward() takes from its arena with `ops`, logits included.
  static size_t arena_bytes(const ModelSpec& spec, DType act, int max_rows, int max_logit_rows,
                            const Ops& ops);

 private:
  // Each calls the overload for the kind of that layer.
  Delta mix(int layer, Tensor x, const RaggedBatch& batch, const KvLayer& kv, Arena& arena);
  Delta mix(const Gqa& m, const GqaWeights& w, Tensor x, const RaggedBatch& batch,
            const KvLayer& kv, Arena& arena);
  Delta ffn(int layer, Tensor x, Arena& arena);
  Delta ffn(const Dense& f, const DenseWeights& w, Tensor x, Arena& arena);
  Delta ffn(const Moe& f, const MoeWeights& w, Tensor x, Arena& arena);
  Tensor dense(const DenseWeights& w, int width, Act act, Tensor x, Arena& arena);
  void settle(Tensor x, Tensor residual, const Delta& delta, const Norm& norm);

  const ModelSpec& spec_;
  const ModelWeights& weights_;
  Ops& ops_;
  comm::Mesh& mesh_;
  DType act_;
};

}  // namespace skiff::model

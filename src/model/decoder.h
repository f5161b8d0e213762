// model/decoder.h -- the one forward pass, for every family and every backend.
#pragma once
#include <memory>
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
  // [batch.num_tokens, hidden] act: every row behind the last norm; of a module, what takes the
  // place of a hidden row for further drafts (ModelSpec::Join).
  Tensor hidden;
  Tensor logits;  // [batch.out_rows, head_rows()] f32; empty if the spec has no head
  // [batch.num_tokens, taps * hidden] act: the residual of every row before those layers, side by
  // side; empty without ModelSpec::taps.
  Tensor taps = {};
};

// A Decoder holds no state between steps. Weights, spec, ops and mesh must outlive it.
class Decoder {
 public:
  // `act`: dtype of activations, kF32 or kBF16; the residual stream is always f32.
  Decoder(const ModelSpec& spec, const ModelWeights& weights, Ops& ops, comm::Mesh& mesh,
          DType act);

  // Writes this step's keys and values to kv (one KvLayer per layer). Requires that
  // Ops::begin_step(batch) has been called. A module (ModelSpec::joins) needs `hidden`,
  // [num_tokens, hidden] act: for each row one of the model that it drafts for, behind that model's
  // last norm or, with ModelSpec::kBeside, what combine() made.
  Forward forward(const RaggedBatch& batch, std::span<const KvLayer> kv, Arena& arena,
                  Tensor hidden = {});

  // Writes the same keys and values and leaves nothing else: the last layer ends where they are
  // written.
  void fill(const RaggedBatch& batch, std::span<const KvLayer> kv, Arena& arena,
            Tensor hidden = {});

  // With ModelSpec::kBeside: makes hidden rows, out [rows, hidden] act, of the served model's taps
  // [rows, join_rows * hidden] act.
  void combine(Tensor out, Tensor taps);

  size_t layers() const { return spec_.layers.size(); }

  // Returns the most bytes that forward() takes from its arena with `ops`, logits included.
  static size_t arena_bytes(const ModelSpec& spec, DType act, int max_rows, int max_logit_rows,
                            const Ops& ops);

 private:
  // What one pass reads and changes from layer to layer.
  struct Stream {
    Tensor residual, x;
    Tensor taps;      // see Forward
    size_t mark = 0;  // where the scratch of a block begins in the arena
    Delta delta;      // what the block before adds; empty before the first layer
  };
  Stream begin(const RaggedBatch& batch, Arena& arena, Tensor hidden);
  void next(Stream& stream, const Norm& norm, Arena& arena);
  Tensor enter(size_t layer, Stream& stream, const RaggedBatch& batch, Arena& arena);
  Forward end(Stream& stream, Arena& arena);
  void tap(size_t layer, const Stream& stream);
  void layer(int layer, Stream& stream, const RaggedBatch& batch, const KvLayer& kv, Arena& arena);
  // Each calls the overload for the kind of that layer. store() is the part of mix() that writes
  // keys and values; it returns the queries, with GQA followed by keys and values.
  Tensor store(int layer, Tensor x, const RaggedBatch& batch, const KvLayer& kv, Arena& arena);
  Tensor store(const Gqa& m, const GqaWeights& w, Tensor x, const RaggedBatch& batch,
               const KvLayer& kv, Arena& arena);
  Tensor store(const Mla& m, const MlaWeights& w, Tensor x, const RaggedBatch& batch,
               const KvLayer& kv, Arena& arena);
  Delta mix(int layer, Tensor x, const RaggedBatch& batch, const KvLayer& kv, Arena& arena);
  Delta mix(const Gqa& m, const GqaWeights& w, Tensor x, const RaggedBatch& batch,
            const KvLayer& kv, Arena& arena);
  Delta mix(const Mla& m, const MlaWeights& w, Tensor x, const RaggedBatch& batch,
            const KvLayer& kv, Arena& arena);
  Delta ffn(int layer, Tensor x, Arena& arena);
  Delta ffn(const Dense& f, const DenseWeights& w, Tensor x, Arena& arena);
  Delta ffn(const Moe& f, const MoeWeights& w, Tensor x, Arena& arena);
  void join(Tensor residual, Tensor tokens, Tensor hidden, Arena& arena);
  void project(Tensor residual, Tensor tokens, Tensor hidden, Arena& arena);
  Tensor beside(Tensor residual, Tensor tokens, Arena& arena);
  Tensor dense(const DenseWeights& w, int width, Act act, Tensor x, Arena& arena);
  void score(Tensor logits, Tensor last);
  void classify(Tensor scores, Tensor last, Arena& arena);
  void settle(Tensor x, Tensor residual, const Delta& delta, const Norm& norm);

  const ModelSpec& spec_;
  const ModelWeights& weights_;
  Ops& ops_;
  comm::Mesh& mesh_;
  const std::unique_ptr<comm::RowExchange> alone_ = comm::make_solo_exchange();
  DType act_;
};

}  // namespace skiff::model

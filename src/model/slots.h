// model/slots.h -- every weight that a ModelSpec asks for, as one list: the loader fills it, the
// memory plan counts it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/decoder.h"

namespace skiff {

// Where a weight goes and its exact shape.
struct Slot {
  enum Kind { kTable, kNorm, kLinear, kVector } kind = kLinear;
  std::string_view name;       // a field of ModelWeights or LayerWeights, as in NameRule
  int layer = -1;              // -1: outside of the layers
  int64_t experts = 0;         // > 0: a stack [experts, out, in]
  int64_t always = 0;          // the last `always` experts are slices of shared_slot()
  int64_t out = 0, in = 1;     // norms and vectors: [out]
  std::vector<int64_t> parts;  // rows of the pieces that checkpoints may store apart (q, k, v)
  bool bias = false;           // kLinear: with a bias [out]
  bool wide = false;           // kLinear: kept in float32 whatever the activations are, as a router
  float eps = 0;               // kNorm

  int64_t elements() const { return (experts ? experts : 1) * out * in; }
  // What the weight is kept in where activations are `compute`.
  DType dtype(DType compute) const {
    return wide || kind == kNorm || kind == kVector ? DType::kF32 : compute;
  }
};

// What a checkpoint stores as one wide shared expert, of which an expert stack's last `always`
// experts are the pieces: equal runs of gate rows and of up rows, and of columns of down.
Slot shared_slot(const Slot& stack);

// In the order in which they are loaded. A tied head is listed too (it is prepared from the
// embedding's values), see is_tied_head().
std::vector<Slot> slots_of(const ModelSpec& spec);
bool is_tied_head(const Slot& slot, const ModelSpec& spec);

// The place of `slot` in `weights`, whose layers are already there.
Linear& linear_at(ModelWeights& weights, const Slot& slot);
Norm& norm_at(ModelWeights& weights, const Slot& slot);
Tensor& tensor_at(ModelWeights& weights, const Slot& slot);  // kTable and kVector

}  // namespace skiff

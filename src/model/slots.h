// model/slots.h -- every weight of a ModelSpec, as one list: the loader fills it, the memory plan
// counts it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/schemes.h"
#include "model/weights.h"
#include "weights/weight_shape.h"

namespace skiff::model {

// The format that a weight is kept in, and how it gets there.
struct Kept {
  WeightFormat format;
  std::optional<QuantRule> rule;  // none: plain values
};

// A Slot says where a weight goes and its exact shape.
struct Slot {
  enum Kind { kTable, kNorm, kLinear, kVector } kind = kLinear;
  // The member that the weight becomes: a Linear or a Norm for slots of that kind, a Tensor for the
  // others.
  using Place = std::variant<Linear*, Norm*, Tensor*>;
  // Finds the place in `weights`; slots outside of the layers ignore `layer`.
  Place (*find)(ModelWeights& weights, size_t layer) = nullptr;
  std::string_view name;  // the name that NameRules have for it
  int layer = -1;         // -1: outside of the layers
  int64_t experts = 0;    // > 0: a stack [experts, out, in]
  // The last `always` experts of a stack are equal slices of one wide weight, the checkpoint's
  // shared expert, whose name in NameRules is `shared_name`. It is cut along the rows of each part
  // or along the columns.
  int64_t always = 0;
  std::string_view shared_name;
  enum Slices { kRows, kColumns } slices = kRows;
  int64_t out = 0, in = 1;     // norms and vectors: [out]
  std::vector<int64_t> parts;  // rows of the pieces that checkpoints may store apart (q, k, v)
  bool bias = false;           // kLinear: with a bias [out]
  LayerKind layer_kind = LayerKind::kDense;  // kLinear
  bool wide = false;  // kLinear: kept in float32 whatever the activations are, as a router
  float eps = 0;      // kNorm

  WeightShape shape() const { return {.experts = experts, .out = out, .in = in, .bias = bias}; }
  int64_t elements() const { return (experts ? experts : 1) * out * in; }
  // Returns the dtype that the weight is kept in if activations are `compute`.
  DType dtype(DType compute) const {
    return wide || kind == kNorm || kind == kVector ? DType::kF32 : compute;
  }
  // Returns the format in which the backend keeps the weight, and the rule that makes it.
  Kept kept(const Precision& precision, const SchemeChoice& schemes) const;
  // `weights` must come from empty_weights() of the slot's spec.
  Place place(ModelWeights& weights) const { return find(weights, static_cast<size_t>(layer)); }
};

// Returns the formats that weights of such a model are quantized to.
std::vector<WeightFormat> quantized_formats(const ModelSpec& spec, const SchemeChoice& schemes);

// Returns the wide weight of which the last `always` experts of `stack` are slices.
Slot shared_slot(const Slot& stack);

// Names a slot for messages: "qkv of layer 3".
std::string describe_slot(const Slot& slot);

// The slots are in the order in which they are loaded. A tied head is among them, although it is
// prepared from the embedding's values: see is_tied_head().
std::vector<Slot> slots_of(const ModelSpec& spec);
bool is_tied_head(const Slot& slot, const ModelSpec& spec);

}  // namespace skiff::model

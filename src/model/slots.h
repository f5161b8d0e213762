// model/slots.h -- every weight of a ModelSpec, as one list: the loader fills it, the memory plan
// counts it.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/schemes.h"
#include "model/weights.h"
#include "weights/weight_shape.h"

namespace skiff::model {

// The format that a weight is kept in, and how it gets there: as the checkpoint has it, quantized
// by `rule`, or as plain values.
struct Kept {
  WeightFormat format;
  std::optional<QuantRule> rule;
  bool stored = false;  // elements, scales and zero points are those of the checkpoint
  bool order = false;   // `stored`: with an order of columns (Linear::order)

  bool quantized() const { return stored || rule.has_value(); }
};

// How a checkpoint has the weight of a slot: in a quantized format, or plain, whatever its dtype.
struct StoredForm {
  WeightFormat format;
  bool order = false;
  std::string lost;  // a quantized form that no backend can keep, in words; `format` is plain then
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
  int64_t first = 0;      // the routed expert that the stack begins with (Router::before)
  // The last `always` experts of a stack are equal slices of one wide weight, the checkpoint's
  // shared expert, whose name in NameRules is `shared_name`. It is cut along the rows of each part
  // or along the columns.
  int64_t always = 0;
  std::string_view shared_name;
  enum Slices { kRows, kColumns } slices = kRows;
  // A stack of matrices that are cut from a stored weight [experts * `each`, n]: matrix h has its
  // rows [h * each + first, ..), as they are or transposed.
  struct HeadCut {
    std::string_view name;  // the name in NameRules of the stored weight
    int64_t each = 0, first = 0;
    bool transposed = false;
  };
  std::optional<HeadCut> heads;
  int64_t out = 0, in = 1;     // norms and vectors: [out]
  std::vector<int64_t> parts;  // rows of the pieces that checkpoints may store apart (q, k, v)
  bool bias = false;           // kLinear: with a bias [out]
  LayerKind layer_kind = LayerKind::kDense;  // kLinear
  bool wide = false;   // kLinear: kept in float32 whatever the activations are, as a router
  bool plain = false;  // kLinear: kept in the dtype of activations, never quantized
  float eps = 0;       // kNorm

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

// Says what Ops::multiplies() says.
using Multiplies = std::function<bool(const WeightFormat&)>;

// Returns what becomes of each slot. `stored` has the form of each in the checkpoint, or nothing
// where none is quantized. A quantized weight is kept as it is where the backend multiplies its
// format, unless a scheme asks for elements of another dtype; else it is widened to plain values,
// which that scheme may quantize anew.
std::vector<Kept> kept_slots(const std::vector<Slot>& slots, const Precision& precision,
                             const SchemeChoice& schemes, std::span<const StoredForm> stored,
                             const Multiplies& multiplies);

// Returns the quantized formats among them, each once.
std::vector<WeightFormat> quantized_formats(std::span<const Kept> kept);

// Says which weights are widened because the backend does not multiply them, a line for each
// format: "112 weights are int8 with ... ".
std::vector<std::string> widened_formats(std::span<const Kept> kept,
                                         std::span<const StoredForm> stored);

// Returns the stored weight from which the matrices of a stack with Slot::heads are cut.
Slot cut_slot(const Slot& stack);

// Returns the wide weight of which the last `always` experts of `stack` are slices.
Slot shared_slot(const Slot& stack);

// Names a slot for messages: "qkv of layer 3".
std::string describe_slot(const Slot& slot);

// The slots are in the order in which they are loaded. A tied head is among them, although it is
// prepared from the embedding's values: see is_tied_head(). What a module (ModelSpec::joins) shares
// with the model that it drafts for is not among its slots. `spec` may be that of one of so many
// ranks (arch/shard.h); each has its share of the head's rows.
std::vector<Slot> slots_of(const ModelSpec& spec, int ranks = 1);
bool is_tied_head(const Slot& slot, const ModelSpec& spec);

}  // namespace skiff::model

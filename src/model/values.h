// model/values.h -- the values of slots, read from a checkpoint or generated.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/slot_cut.h"
#include "model/slots.h"
#include "model/sources.h"

namespace skiff::model {

// A slot is named by its index in the list that the values were made for, which must outlive them.
// A tied head has no values. Const calls are thread-safe.
class Values {
 public:
  virtual ~Values() = default;
  virtual DType dtype(size_t slot) const = 0;  // dtype that fill() writes; biases are f32
  virtual bool has_bias(size_t slot) const = 0;
  virtual size_t bytes(size_t slot) const = 0;  // bytes of the tensors that are read for it
  // Writes rows [first, first + rows) of the weight, seen as [experts * out, in], one after the
  // other in dtype(). Norms and vectors must be read whole.
  virtual void fill(size_t slot, int64_t first, int64_t rows, std::byte* to) const = 0;
  virtual void fill_bias(size_t slot, float* to) const = 0;  // writes [out]
  // How the values are stored. Whatever it is, fill() writes plain values.
  virtual StoredForm form(size_t /*slot*/) const { return {}; }
  // For a slot whose form is quantized. Fills `to`, kPlain in host memory and in that format, with
  // the elements, scales and zero points of the rows from `first` on of the weight, seen as above;
  // they lie in one expert and begin with a row of blocks.
  virtual void fill_codes(size_t /*slot*/, int64_t /*first*/, const Linear& /*to*/) const {}
  // Linear::order of such a slot; empty where columns are in order.
  virtual std::vector<int32_t> order(size_t /*slot*/) const { return {}; }
  // Linear::input_scale of such a slot; empty where activations have no fixed scale.
  virtual std::vector<float> input_scales(size_t /*slot*/) const { return {}; }
  // Names what row `row` of that view comes from, for messages: a tensor, or else the weight.
  virtual std::string origin(size_t slot, int64_t row) const = 0;
};

// Throws LoadError naming file and tensor, as find_sources does. `cuts` say which parts of the
// model's weights the slots are, one for each; without them, the slots are the model's own.
// fill() widens quantized weights to `act`, or to float32 where the slot asks for it.
std::unique_ptr<Values> stored_values(const std::string& dir, const ModelConfig& config,
                                      const std::vector<Slot>& slots, DType act,
                                      std::span<const SlotCut> cuts = {},
                                      Remarks remarks = Remarks::kLogged);

// Deterministic in (seed, slot). Linears and the table are normal with deviation 1/sqrt(in)
// (the table: 1), norms lie around 1, biases and correction biases around 0; none is all zeros.
// Values come from one pool of normal draws, read from a different place for each slot, so that
// filling costs about as much as copying. A part of a weight has the values that it has in the
// whole. `compute` is f32 or bf16; `cuts` as above, which must outlive the values.
std::unique_ptr<Values> dummy_values(uint64_t seed, DType compute, const ModelSpec& spec,
                                     const std::vector<Slot>& slots,
                                     std::span<const SlotCut> cuts = {});

}  // namespace skiff::model

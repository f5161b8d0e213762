// model/code_buffer.h -- memory for the elements, scales and zero points of weights that are being
// quantized, or read as the checkpoint has them.
#pragma once
#include "model/slots.h"
#include "tensor/memory.h"

namespace skiff::model {

// Serves one weight after the other.
class CodeBuffer {
 public:
  explicit CodeBuffer(Device device) : device_(device) {}
  // Makes room for a weight of that slot in `format`; invalidates views.
  void reserve(const Slot& slot, const WeightFormat& format);
  // The whole weight, [out, in] or [experts, out, in], kPlain and without a bias.
  Linear view(const Slot& slot, const WeightFormat& format) const;
  // Rows [first, first + rows) of the weight seen as [experts * out, in]. They must lie in one
  // expert and begin with a row of blocks.
  Linear rows(const Slot& slot, const WeightFormat& format, int64_t first, int64_t rows) const;
  // So many rows of a weight in memory of their own, at `memory`, of piece_bytes() bytes.
  static size_t piece_bytes(const Slot& slot, const WeightFormat& format, int64_t rows);
  static Linear piece(const Slot& slot, const WeightFormat& format, int64_t rows,
                      std::byte* memory);

 private:
  Device device_;
  Buffer codes_, scales_, zeros_;
};

}  // namespace skiff::model

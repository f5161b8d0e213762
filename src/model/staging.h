// model/staging.h -- one slot's values, put together on the host from the pieces of a file.
#pragma once
#include <span>

#include "model/sources.h"
#include "tensor/memory.h"

namespace skiff {

// Memory that is reused from slot to slot and grows to the largest.
class Staging {
 public:
  // pinned: page-locked, for a device that copies from it.
  explicit Staging(bool pinned = false) : pinned_(pinned) {}
  // [out, in] or [experts, out, in] (norms and vectors [out]) in the dtype of the file; f32 when
  // the pieces differ. Valid until the next call.
  Tensor weight(const Slot& slot, const Source& source);
  // [out] f32; empty when the source has none. Valid until the next call.
  Tensor bias(const Slot& slot, const Source& source);
  // The same memory, to be filled by the caller.
  Tensor blank_weight(const Slot& slot, DType dtype);
  Tensor blank_bias(const Slot& slot);

 private:
  const bool pinned_;
  Buffer weight_, bias_;
};

}  // namespace skiff

// model/unpack.h -- the values of a quantized module, widened to floats with memory for a few rows.
#pragma once
#include "model/sources.h"

namespace skiff::model {

// Writes the values of a region of a quantized module as T (float or BF16), each rounded once. The
// columns are those of the layer's input, whatever their order in the canonical form is.
template <class T>
void widen(const StoredModule& module, const Region& region, T* to);

}  // namespace skiff::model

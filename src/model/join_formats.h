// model/join_formats.h -- the one format of the parts that a slot is put together from.
#pragma once
#include "model/sources.h"

namespace skiff::model {

// Fills Source::format, lost and order. Weights that are multiplied as one must be alike; others,
// and those of slots that stay plain, become floats: of `act`, or float32 where the slot is wide.
void join_formats(Source& source, const Slot& slot, DType act);

}  // namespace skiff::model

// model/stored_codes.h -- the elements, scales and zero points of slots that are kept as the
// checkpoint has them. Nothing is rounded on the way.
#pragma once
#include <vector>

#include "model/sources.h"
#include "weights/linear.h"

namespace skiff::model {

// Fills `to`, kPlain in host memory and in source.format: the rows of the slot, seen as
// [experts * out, in], from row `first` on. They lie in one expert and begin with a row of blocks.
// Thread-safe. Throws a LoadError that names the tensor where a scale is not right.
void fill_codes(const Source& source, const Slot& slot, int64_t first, const Linear& to);

// Returns the scales of static activations, one for each expert or one: the largest of those of the
// weights that are multiplied as one, so that none of their activations is clipped that its own
// scale would not clip. Empty where the format has none.
std::vector<float> input_scales(const Source& source, const Slot& slot);

}  // namespace skiff::model

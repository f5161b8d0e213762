// model/overwrite.h -- puts other values into the weights that a decoder computes with, at the same
// addresses.
#pragma once
#include "base/result.h"
#include "model/loader.h"
#include "ops/ops.h"

namespace skiff::model {

// Ok where overwrite() is possible: both models have the same tensors, in the same forms and
// sizes. Else the error names the first weight that differs.
Status check_same_form(const LoadedModel& to, const LoadedModel& from);

// Puts the bytes of all weights, and of the scales of the KV cache, of `from` in the place of those
// of `to`, which may have been given back. Memory is moved, or copied and then freed, piece by
// piece. Whatever refers to the weights of `to` stays valid, recorded steps included. Nothing
// should fail. Requires check_same_form(); no step may be in flight.
void overwrite(LoadedModel& to, LoadedModel from, Ops& ops);

}  // namespace skiff::model

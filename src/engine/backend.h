// engine/backend.h -- makes the backend that a Resolved names, and finds out how much memory it may
// use.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/resolved.h"
#include "model/memory_plan.h"
#include "ops/ops.h"

namespace skiff::engine {

// Throws LoadError if there is no such device.
std::unique_ptr<Ops> make_ops(const Resolved& resolved);

// Returns the input of plan_memory() for a rank, whose `spec` this is. Asks the device of `ops` how
// much memory is free now.
model::MemoryRequest memory_request(const Resolved& resolved, const ModelSpec& spec,
                                    const Ops& ops);

// Returns the quantized formats in which weights are kept, each once.
std::vector<WeightFormat> quantized_formats(const Resolved& resolved, const ModelSpec& spec,
                                            const Ops& ops);

// Returns the same of the model that drafts; CHECKs that there is one.
std::vector<WeightFormat> drafter_formats(const Resolved& resolved, const Ops& ops);
// Whether drafts are drawn as tokens are, for DraftRule::kRejection. A drafter that knows a part of
// the tokens drafts the most likely one.
bool samples_drafts(const Resolved& resolved);

// Returns a phrase with the least memory that one sequence needs, which is known before the device
// is asked.
std::string minimum_need(const Resolved& resolved, const ModelSpec& spec);

}  // namespace skiff::engine

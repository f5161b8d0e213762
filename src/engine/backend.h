// engine/backend.h -- the backend that a Resolved names, and the memory that it may use.
#pragma once
#include <memory>
#include <string>

#include "engine/resolved.h"
#include "model/memory_plan.h"
#include "ops/ops.h"

namespace skiff::engine {

// Throws LoadError where there is no such device.
std::unique_ptr<Ops> make_ops(const Resolved& resolved);

// For plan_memory(). Asks the device of `ops` how much memory is free now.
model::MemoryRequest memory_request(const Resolved& resolved, const ModelSpec& spec,
                                    const Ops& ops);

// What one sequence needs at least, in words: known before the device is asked.
std::string minimum_need(const Resolved& resolved, const ModelSpec& spec);

}  // namespace skiff::engine

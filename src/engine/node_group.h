// engine/node_group.h -- joins the process of this node to those of the others that hold parts of
// the same model.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "comm/nodes.h"
#include "engine/fingerprint.h"
#include "engine/resolved.h"
#include "model/config.h"

namespace skiff::engine {

// Called from any thread with the reason for which another node has ended the group.
using Lost = std::function<void(const std::string& why)>;

// What all nodes must agree on: build, arithmetic, the model's folder, and all settings that plans
// and sizes follow from. Throws LoadError.
peer::Facts node_facts(const Resolved& resolved, const model::ModelConfig& model,
                       const Arithmetic& arithmetic);

// Returns the connected nodes once all have come and agree, or null where there is only this one.
// No weights are read before. Throws LoadError: see nodes/rendezvous.h.
std::unique_ptr<comm::Nodes> join_nodes(const Resolved& resolved, const model::ModelConfig& model,
                                        const Lost& lost);

}  // namespace skiff::engine

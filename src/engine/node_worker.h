// engine/node_worker.h -- what the process of a node other than the first does: it has its part of
// the ranks and carries out the plans of node 0, in lockstep with all others.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/config.h"
#include "message/token_constraint.h"

namespace skiff::engine {

class NodeWorker {
 public:
  // Makes the constraint again whose TokenConstraint::source() this is.
  using MakeConstraint =
      std::function<Result<std::shared_ptr<const TokenConstraint>>(const std::string& source)>;

  // Joins the group, loads, and takes memory as node 0 does. config.nodes says which node this is,
  // which must not be 0; config.failed is called, from any thread, when another node ends the
  // group. Throws LoadError, and comm::GroupEnded if the group ends meanwhile.
  static std::unique_ptr<NodeWorker> start(const EngineConfig& config, MakeConstraint constraint);
  virtual ~NodeWorker() = default;

  // Carries out plans until node 0 dismisses this node. Throws std::runtime_error with the reason
  // for which the group has ended.
  virtual void run() = 0;
};

}  // namespace skiff::engine

// engine/rank.h -- what one rank of a group holds: its backend, its weights, its keys and values,
// and the executor that computes steps with them. What a process has once (the configuration, the
// scheduler, the tiers below the device) is Llm's.
#pragma once
#include <memory>
#include <optional>

#include "comm/communicator.h"
#include "engine/resolved.h"
#include "engine/start_log.h"
#include "engine/step_executor.h"
#include "model/memory_plan.h"

namespace skiff::engine {

class Rank {
 public:
  // Makes the backend, plans its memory, loads the weights and takes the memory of keys and values.
  // The first rank of `mesh` reports to the user. `resolved` and `mesh` must outlive this object.
  // Throws LoadError; if memory runs out, log.memory states the need as far as it is known.
  Rank(const Resolved& resolved, const model::ModelConfig& model, comm::Mesh& mesh, StartLog& log);
  Rank(const Rank&) = delete;

  // Completes the construction: allocates the memory of activations. Called once. Plans save blocks
  // to `host` and load them from it; it must outlive this object.
  StepExecutor& make_executor(model::HostBlocks& host);

  Ops& ops() const { return *ops_; }
  const model::MemoryPlan& memory() const { return memory_; }
  StepExecutor& executor() { return *executor_; }  // requires make_executor()

 private:
  const Resolved& resolved_;
  comm::Mesh& mesh_;
  std::unique_ptr<Ops> ops_;
  model::MemoryPlan memory_;
  model::LoadedModel weights_;
  std::optional<model::KvCache> kv_;
  std::optional<StepExecutor> executor_;
};

}  // namespace skiff::engine

// engine/rank.h -- what one rank of a group holds: its backend, its weights, its keys and values,
// and the executor that computes steps with them. What a process has once (the configuration, the
// scheduler, the tiers below the device) is Llm's.
#pragma once
#include <memory>
#include <optional>

#include "comm/communicator.h"
#include "engine/rank_weights.h"
#include "engine/resolved.h"
#include "engine/start_log.h"
#include "engine/step_executor.h"
#include "model/memory_plan.h"

namespace skiff::engine {

// Returns the settings of one rank of the group that `all` are for: its device where each has one
// of its own, its threads, of which each has at least one, and the forms of its part of the
// weights.
Resolved settings_of_rank(const Resolved& all, const model::ModelConfig& model,
                          const model::RankOf& part);

class Rank {
 public:
  // Makes the backend, plans its memory, loads the weights and takes the memory of keys and values.
  // `model` is the whole, of which the rank has its part; all ranks, and all replicas that share
  // experts, have as many blocks as that with the least memory. `log` says whether it reports to
  // the user. `mesh` must outlive this object. Throws LoadError; if memory runs out, log.memory
  // states the need as far as it is known.
  //
  // `twin` is the same rank of another replica, or null: where both compute on the host, its memory
  // plan counts for this one, too, and its weights are used.
  Rank(const Resolved& resolved, const model::ModelConfig& model, comm::Mesh& mesh, StartLog& log,
       const Rank* twin = nullptr);
  Rank(const Rank&) = delete;

  // Completes the construction: allocates the memory of activations. Called once. Plans save blocks
  // to `host`, which has this rank's part of them, and load them from it; it must outlive this
  // object.
  StepExecutor& make_executor(model::HostBlocks& host);

  Ops& ops() const { return *ops_; }
  comm::Communicator& group() const { return *mesh_.tp; }
  int sharer() const { return mesh_.experts->rank(); }  // its number where replicas share experts
  const model::MemoryPlan& memory() const { return memory_; }
  StepExecutor& executor() { return *executor_; }  // requires make_executor()
  const model::LoadedModel& weights() const { return weights_->model; }
  const model::KvCache& kv() const { return *kv_; }

  // What follows changes the weights between steps, on the thread that drives ops(). Where twins
  // share them, the rank that has loaded them does it for all, and the others do nothing.
  size_t weight_bytes() const { return shares_ ? 0 : weights_->bytes(); }
  size_t give_back_weights() { return shares_ ? 0 : give_back(*weights_); }
  // Reads other weights beside the present ones: see load_alike(). Throws a LoadError.
  void read_weights(const model::ModelConfig& model, const WeightFolders& folders);
  void take_weights();  // puts those that were read last in the place of the present ones
  void drop_weights() { fresh_.reset(); }

 private:
  void plan(const ModelSpec& spec, StartLog& log);
  std::shared_ptr<RankWeights> load(const model::ModelConfig& model, const StartLog& log);
  ModelDrafter* make_drafter();
  comm::Mesh& mesh_of_drafter();
  model::RankOf part() const {
    return {.rank = mesh_.tp->rank(),
            .size = mesh_.tp->size(),
            .sharer = mesh_.experts->rank(),
            .sharers = mesh_.experts->size()};
  }

  comm::Mesh& mesh_;
  comm::Mesh alone_ = comm::make_solo_mesh();
  const Resolved resolved_;  // the rank's own: see settings_of_rank()
  std::unique_ptr<Ops> ops_;
  model::MemoryPlan memory_;
  bool shares_ = false;                   // the weights are those of a twin that lives longer
  std::shared_ptr<RankWeights> weights_;  // shared with twins
  std::optional<RankWeights> fresh_;      // what read_weights() has read
  std::optional<model::KvCache> kv_;
  std::optional<ModelDrafter> drafter_;
  std::optional<StepExecutor> executor_;
};

}  // namespace skiff::engine

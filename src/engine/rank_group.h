// engine/rank_group.h -- the ranks that compute one model together, as far as they are here: one,
// or several as threads of this process, each with its own Ops (on CUDA a device of its own) and
// its part of weights, keys and values. There is one scheduler and one step loop for all, on node
// 0: every rank gets the same plans.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/devices/group.h"
#include "engine/device_nodes.h"
#include "engine/rank.h"
#include "engine/runner.h"

namespace skiff::engine {

class Lockstep;
class RankGroup;

// What the other replicas of the model in this process are to one, where there are any.
struct OtherReplicas {
  const RankGroup* twin = nullptr;  // one of them, with whose weights this one computes (see Rank)
  Lockstep* lockstep = nullptr;     // they share experts with this one; it outlives all of them
};

class RankGroup {
 public:
  // Makes the ranks of this node, which load at the same time as those of others, once all nodes
  // have come. If one cannot, the others end too and its exception is thrown. `log` is that of the
  // first rank here. `lost` is called from any thread, from now on, when another node has ended the
  // group; it may be empty. Throws LoadError; comm::GroupEnded if another node, or a replica that
  // shares the experts, has ended the group.
  RankGroup(const Resolved& resolved, const model::ModelConfig& model, StartLog& log,
            const OtherReplicas& others = {}, const Lost& lost = nullptr);
  RankGroup(const RankGroup&) = delete;

  // Completes the construction, as Rank::make_executor() does. A block of `host` has the parts of
  // all ranks, one after the other; it owns the memory.
  void make_executors(model::HostBlocks& host);
  // Warms up all ranks (StepExecutor::tune and record): what the first one measures, the others
  // adopt, so that all multiply with the same algorithms. On CUDA no rank may allocate device
  // memory in a step from then on.
  void warm_up();
  // Makes a runner that computes each plan on all ranks, where this is node 0, else on those here,
  // and returns the result of the first. One at a time; the group must outlive it. Requires
  // make_executors().
  std::unique_ptr<Runner> make_runner();
  // On node 0: lets the other nodes end in good order, after the last step. Where there are none,
  // it does nothing.
  void dismiss();

  int size() const { return static_cast<int>(ranks_.size()); }  // number of ranks here
  comm::Nodes* nodes() const { return nodes_.get(); }           // null if all ranks are here
  // Returns the first rank here, which stands for all in what is the same for each.
  Rank& first() const { return *ranks_.front(); }
  Rank& rank(int index) const { return *ranks_[static_cast<size_t>(index)]; }

 private:
  void on_all(const std::function<void(size_t rank)>& work);
  void adopt_tuning();

  std::vector<comm::Mesh> make_meshes(const Resolved& resolved);

  Lockstep* const lockstep_;
  // Where ranks have a device each: of the devices of all nodes, and of those of this process.
  std::unique_ptr<DeviceNodes> device_nodes_;  // outlives nodes_, whose threads call it
  std::unique_ptr<comm::Nodes> nodes_;
  std::optional<devices::DeviceGroup> devices_;
  std::vector<comm::Mesh> meshes_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<model::HostBlocks> host_parts_;  // by rank
};

}  // namespace skiff::engine

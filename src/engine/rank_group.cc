#include "engine/rank_group.h"

#include <fmt/format.h>

#include <optional>

#include "base/load_error.h"
#include "engine/device_runner.h"
#include "engine/group_runner.h"
#include "engine/lockstep_runner.h"
#include "engine/plan_sender.h"
#include "engine/side_by_side.h"

namespace skiff::engine {
namespace {

std::optional<devices::DeviceGroup> devices_of(const Resolved& resolved) {
  if (resolved.device.kind != ComputeDevice::kCuda || resolved.ranks == 1 ||
      resolved.nodes.nodes > 1)
    return std::nullopt;
  return std::optional<devices::DeviceGroup>(std::in_place, resolved.device.index, resolved.ranks);
}

// Ranks that wait for another node leave before anybody is told: what tells may not return.
Lost leaving(DeviceNodes* devices, const Lost& lost) {
  if (devices == nullptr) return lost;
  return [devices, lost](const std::string& why) {
    devices->end(why);
    if (lost) lost(why);
  };
}

}  // namespace

RankGroup::RankGroup(const Resolved& resolved, const model::ModelConfig& model, StartLog& log,
                     const OtherReplicas& others, const Lost& lost)
    : lockstep_(others.lockstep),
      device_nodes_(make_device_nodes(resolved, lost)),
      nodes_(join_nodes(resolved, model, leaving(device_nodes_.get(), lost))),
      devices_(devices_of(resolved)),
      meshes_(make_meshes(resolved)),
      ranks_(meshes_.size()) {
  std::vector<StartLog> logs(meshes_.size(), StartLog{.quiet = true});
  on_all([&](size_t rank) {
    ranks_[rank] =
        std::make_unique<Rank>(resolved, model, meshes_[rank], rank == 0 ? log : logs[rank],
                               others.twin ? others.twin->ranks_[rank].get() : nullptr);
  });
}

std::vector<comm::Mesh> RankGroup::make_meshes(const Resolved& resolved) {
  if (device_nodes_) return device_nodes_->connect(*nodes_);
  if (nodes_) return nodes_->make_meshes();
  std::vector<comm::Mesh> meshes =
      devices_ ? devices_->make_meshes() : comm::make_thread_meshes(resolved.ranks);
  if (lockstep_)
    for (int rank = 0; rank < resolved.ranks; ++rank)
      meshes[static_cast<size_t>(rank)].experts = lockstep_->exchange(resolved.sharer, rank);
  return meshes;
}

// The calling thread is the first rank's. Where replicas share experts, other ranks of this one may
// wait for replicas that wait for the rank that has failed.
void RankGroup::on_all(const std::function<void(size_t rank)>& work) {
  side_by_side(meshes_.size(), work, [this](size_t rank, const std::string& why) {
    const comm::Mesh& mesh = meshes_[rank];
    const std::string whose = fmt::format("rank {}: {}", mesh.tp->rank(), why);
    if (lockstep_) lockstep_->end(fmt::format("replica {}: {}", mesh.experts->rank(), whose));
    mesh.tp->abort(whose);
  });
}

void RankGroup::make_executors(model::HostBlocks& host) {
  for (int rank = 0; rank < size(); ++rank) host_parts_.push_back(host.part(rank, size()));
  on_all([&](size_t rank) {
    ranks_[rank]->ops().bind_thread();
    ranks_[rank]->make_executor(host_parts_[rank]);
  });
}

void RankGroup::warm_up() {
  const auto warm = [&](void (StepExecutor::*how)(int blocks)) {
    on_all([&](size_t rank) {
      ranks_[rank]->ops().bind_thread();
      (ranks_[rank]->executor().*how)(ranks_[rank]->memory().blocks);
    });
  };
  warm(&StepExecutor::tune);
  adopt_tuning();
  warm(&StepExecutor::record);
  if (devices_) devices_->begin_service();
  if (device_nodes_) device_nodes_->begin_service();
  // From now on steps are timed, so no replica computes before all that share experts can.
  for (const comm::Mesh& mesh : meshes_) mesh.experts->begin_service();
}

// Products that several ranks, or replicas that share experts, compute of the same rows must give
// the same bits: what a router says decides which of them computes a row.
void RankGroup::adopt_tuning() {
  std::vector<std::byte> tuning = first().ops().tuning();
  if (lockstep_) tuning = lockstep_->of_first(first().sharer(), std::move(tuning));
  if (device_nodes_)
    tuning = bytes_of_first(*nodes_, first().group().rank() == 0, std::move(tuning));
  for (const auto& rank : ranks_) {
    const int replica = rank->sharer(), number = rank->group().rank();
    if (replica + number > 0 && !rank->ops().adopt_tuning(tuning))
      throw LoadError(fmt::format("{}rank {} cannot use the algorithms of {}: their devices differ",
                                  lockstep_ ? fmt::format("replica {}, ", replica) : "", number,
                                  lockstep_ ? "replica 0, rank 0" : "rank 0"));
  }
}

std::unique_ptr<Runner> RankGroup::make_runner() {
  if (lockstep_ && size() == 1)
    return std::make_unique<LockstepRunner>(*lockstep_, first().sharer(), first().executor());
  if (!nodes_ && size() == 1)
    return engine::make_runner(first().executor(), first().ops().device());
  const Device device = first().ops().device();
  std::vector<GroupRunner::Member> members;
  members.reserve(ranks_.size());
  for (const auto& rank : ranks_) members.push_back({rank->executor(), rank->group()});
  if (lockstep_)
    return std::make_unique<LockstepRunner>(
        *lockstep_, first().sharer(),
        make_round_work(*lockstep_, first().sharer(), members, device), device);
  auto runner = std::make_unique<GroupRunner>(members, device);
  if (!nodes_ || members.front().group.rank() > 0) return runner;
  return std::make_unique<PlanSender>(std::move(runner), *nodes_);
}

void RankGroup::dismiss() {
  if (nodes_) nodes_->dismiss();
}

}  // namespace skiff::engine

#include "engine/rank_group.h"

#include <fmt/format.h>

#include <exception>
#include <optional>
#include <thread>

#include "base/load_error.h"
#include "engine/device_runner.h"
#include "engine/group_runner.h"
#include "engine/plan_sender.h"

namespace skiff::engine {
namespace {

std::string reason(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "unknown";
  }
}

bool only_followed(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const comm::GroupEnded&) {
    return true;
  } catch (...) {
    return false;
  }
}

// Throws what a rank threw of itself; only where there is none, what the group's end made others
// throw.
void throw_first(const std::vector<std::exception_ptr>& thrown) {
  for (const bool followed : {false, true})
    for (const std::exception_ptr& one : thrown)
      if (one && only_followed(one) == followed) std::rethrow_exception(one);
}

std::optional<devices::DeviceGroup> devices_of(const Resolved& resolved) {
  if (resolved.device.kind != ComputeDevice::kCuda || resolved.ranks == 1) return std::nullopt;
  return std::optional<devices::DeviceGroup>(std::in_place, resolved.device.index, resolved.ranks);
}

}  // namespace

RankGroup::RankGroup(const Resolved& resolved, const model::ModelConfig& model, StartLog& log,
                     const RankGroup* twin, const Lost& lost)
    : nodes_(join_nodes(resolved, model, lost)),
      devices_(devices_of(resolved)),
      meshes_(make_meshes(resolved.ranks)),
      ranks_(meshes_.size()) {
  std::vector<StartLog> logs(meshes_.size(), StartLog{.quiet = true});
  on_all([&](size_t rank) {
    ranks_[rank] =
        std::make_unique<Rank>(resolved, model, meshes_[rank], rank == 0 ? log : logs[rank],
                               twin ? twin->ranks_[rank].get() : nullptr);
  });
}

std::vector<comm::Mesh> RankGroup::make_meshes(int ranks) {
  if (nodes_) return nodes_->make_meshes();
  return devices_ ? devices_->make_meshes() : comm::make_thread_meshes(ranks);
}

// The calling thread is the first rank's.
void RankGroup::on_all(const std::function<void(size_t rank)>& work) {
  std::vector<std::exception_ptr> thrown(meshes_.size());
  const auto attempt = [&](size_t rank) {
    try {
      work(rank);
    } catch (...) {
      thrown[rank] = std::current_exception();
      comm::Communicator& group = *meshes_[rank].tp;
      group.abort(fmt::format("rank {}: {}", group.rank(), reason(thrown[rank])));
    }
  };
  std::vector<std::thread> others;
  for (size_t rank = 1; rank < meshes_.size(); ++rank) others.emplace_back(attempt, rank);
  attempt(0);
  for (std::thread& thread : others) thread.join();
  throw_first(thrown);
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
  const std::vector<std::byte> tuning = first().ops().tuning();
  for (size_t rank = 1; rank < ranks_.size(); ++rank)
    if (!ranks_[rank]->ops().adopt_tuning(tuning))
      throw LoadError(
          fmt::format("rank {} cannot use the algorithms of rank {}: their devices differ",
                      ranks_[rank]->group().rank(), first().group().rank()));
  warm(&StepExecutor::record);
  if (devices_) devices_->begin_service();
}

std::unique_ptr<Runner> RankGroup::make_runner() {
  if (!nodes_ && size() == 1)
    return engine::make_runner(first().executor(), first().ops().device());
  std::vector<GroupRunner::Member> members;
  members.reserve(ranks_.size());
  for (const auto& rank : ranks_) members.push_back({rank->executor(), rank->group()});
  auto runner = std::make_unique<GroupRunner>(members);
  if (!nodes_ || members.front().group.rank() > 0) return runner;
  return std::make_unique<PlanSender>(std::move(runner), *nodes_);
}

void RankGroup::dismiss() {
  if (nodes_) nodes_->dismiss();
}

}  // namespace skiff::engine

#include "engine/group_runner.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "engine/device_runner.h"

namespace skiff::engine {

namespace {

std::unique_ptr<RankRunner> make_rank_runner(StepExecutor& executor, Device device,
                                             RankOfThread rank) {
  if (device == Device{}) return std::make_unique<HostRunner>(executor, std::move(rank));
  return std::make_unique<DeviceThread>(executor, std::move(rank));
}

}  // namespace

GroupRunner::GroupRunner(const std::vector<Member>& members, Device device, const Failed& failed)
    : first_(members.front().group.rank()) {
  for (const Member& member : members) {
    comm::Communicator& group = member.group;
    const auto end = [&group, failed](const std::string& why) {
      const std::string whose = fmt::format("rank {}: {}", group.rank(), why);
      if (failed) failed(whose);
      group.abort(whose);
    };
    ranks_.push_back(
        make_rank_runner(member.executor, device, {.index = group.rank(), .failed = end}));
  }
}

void GroupRunner::launch_in_round(const StepPlan& plan, std::span<const RoundPart> round) {
  for (const auto& rank : ranks_) rank->launch_in_round(plan, round);
}

// Where a rank has failed, its own error is thrown; the other ranks throw GroupEnded, because the
// failed one has ended the group. All ranks are waited for, so that none computes after the throw.
StepResult GroupRunner::wait(uint64_t step) {
  for (const auto& rank : ranks_) rank->expect(step);
  std::optional<StepResult> first;
  std::string own, followed;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    try {
      StepResult result = ranks_[rank]->wait(step);
      if (rank == 0) first = std::move(result);
    } catch (const comm::GroupEnded& ended) {
      followed = ended.what();
    } catch (const std::exception& error) {
      if (own.empty())
        own = fmt::format("rank {}: {}", first_ + static_cast<int>(rank), error.what());
    }
  }
  if (!own.empty()) throw std::runtime_error(own);
  if (!followed.empty()) throw std::runtime_error(followed);
  return std::move(*first);
}

// All are waited for, because they may use what the caller owns.
void GroupRunner::on_ranks(const RankWork& work) {
  std::vector<std::future<void>> done;
  for (size_t rank = 0; rank < ranks_.size(); ++rank)
    done.push_back(ranks_[rank]->begin([&work, rank] { work(rank); }));
  for (const std::future<void>& one : done) one.wait();
  for (std::future<void>& one : done) one.get();
}

}  // namespace skiff::engine

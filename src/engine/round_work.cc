#include "engine/round_work.h"

#include <fmt/format.h>

#include <deque>
#include <exception>

namespace skiff::engine {
namespace {

class OneRank final : public RoundWork {
 public:
  explicit OneRank(StepExecutor& executor) : executor_(executor) {}
  void bind_thread() override { executor_.bind_thread(); }
  void launch(const StepPlan& plan, std::span<const RoundPart> round) override {
    executor_.launch(plan, round);
  }
  void run_empty(std::span<const RoundPart> round) override { executor_.run_empty(round); }
  StepResult collect() override { return executor_.collect(); }
  void on_ranks(const RankWork& work) override { work(0); }

 private:
  StepExecutor& executor_;
};

class SeveralRanks final : public RoundWork {
 public:
  SeveralRanks(Lockstep& lockstep, int replica, const std::vector<GroupRunner::Member>& members,
               Device device)
      : lockstep_(lockstep),
        replica_(replica),
        members_(members),
        runner_(members, device, [this](const std::string& why) { end(why); }) {}

  void launch(const StepPlan& plan, std::span<const RoundPart> round) override {
    runner_.launch_in_round(plan, round);
    launched_.push_back(plan.step);
  }
  void run_empty(std::span<const RoundPart> round) override {
    attempt([&] { runner_.on_ranks([&](size_t rank) { run_empty_on(members_[rank], round); }); });
  }
  StepResult collect() override {
    StepResult result;
    attempt([&] { result = runner_.wait(launched_.front()); });
    launched_.pop_front();
    return result;
  }
  void on_ranks(const RankWork& work) override { runner_.on_ranks(work); }

 private:
  void end(const std::string& why) { lockstep_.end(fmt::format("replica {}: {}", replica_, why)); }

  // Work that a GroupRunner's caller gives ends no group by itself.
  void run_empty_on(const GroupRunner::Member& member, std::span<const RoundPart> round) {
    try {
      member.executor.run_empty(round);
    } catch (const std::exception& error) {
      end(fmt::format("rank {}: {}", member.group.rank(), error.what()));
      member.group.abort(error.what());
      throw;
    }
  }
  template <class F>
  void attempt(F work) {
    try {
      work();
    } catch (const std::exception&) {
      lockstep_.throw_if_ended();
      throw;
    }
  }

  Lockstep& lockstep_;
  const int replica_;
  const std::vector<GroupRunner::Member> members_;
  GroupRunner runner_;
  std::deque<uint64_t> launched_;  // steps that were not collected
};

}  // namespace

std::unique_ptr<RoundWork> make_round_work(StepExecutor& executor) {
  return std::make_unique<OneRank>(executor);
}

std::unique_ptr<RoundWork> make_round_work(Lockstep& lockstep, int replica,
                                           const std::vector<GroupRunner::Member>& members,
                                           Device device) {
  return std::make_unique<SeveralRanks>(lockstep, replica, members, device);
}

}  // namespace skiff::engine

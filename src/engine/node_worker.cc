#include "engine/node_worker.h"

#include <stdexcept>
#include <utility>

#include "base/log.h"
#include "engine/lower_tiers.h"
#include "engine/plan_bounds.h"
#include "engine/rank_group.h"
#include "engine/resolve.h"
#include "message/wire.h"

namespace skiff::engine {
namespace {

class Worker final : public NodeWorker {
 public:
  Worker(model::ModelConfig model, Resolved resolved, const Lost& lost, StartLog& log,
         MakeConstraint constraint);
  void run() override;

 private:
  StepPlan taken(const std::vector<std::byte>& message) const;
  [[noreturn]] void refuse(const std::string& why) const;

  const model::ModelConfig model_;
  const Resolved resolved_;
  const MakeConstraint constraint_;
  RankGroup ranks_;
  LowerTiers lower_;
};

Worker::Worker(model::ModelConfig model, Resolved resolved, const Lost& lost, StartLog& log,
               MakeConstraint constraint)
    : model_(std::move(model)),
      resolved_(std::move(resolved)),
      constraint_(std::move(constraint)),
      ranks_(resolved_, model_, log, {}, lost),
      lower_(open_lower_tiers(resolved_, model_.spec, ranks_.first().ops(), log)) {
  ranks_.make_executors(lower_.host);
  log.ledger.close("executor");
  ranks_.warm_up();
  log.ledger.close("warm-up");
  if (!log.quiet) spdlog::info("start-up took {}", log.ledger.text());
}

void Worker::refuse(const std::string& why) const {
  const std::string reason = fmt::format("node {}: {}", resolved_.nodes.node, why);
  ranks_.nodes()->abort(reason);
  throw std::runtime_error(reason);
}

// Constraints come as their sources.
StepPlan Worker::taken(const std::vector<std::byte>& message) const {
  Result<StepPlan> plan = read_plan(message);
  if (!plan) refuse(plan.error().what);
  sched::Limits limits = resolved_.limits;
  ranks_.first().executor().tell_chaining(limits);
  const Status good = check_plan(*plan, {.limits = limits,
                                         .block_size = resolved_.cache.block_size,
                                         .blocks = ranks_.first().memory().blocks,
                                         .host_blocks = lower_.host.num_blocks()});
  if (!good) refuse(good.error().what);
  for (OpenSlot& open : plan->opened) {
    if (!open.params.constraint) continue;
    auto made = constraint_(open.params.constraint->source());
    if (!made) refuse(fmt::format("a constraint: {}", made.error().what));
    open.params.constraint = std::move(*made);
  }
  return std::move(*plan);
}

// A step is read while the one before it is computed.
void Worker::run() {
  comm::Nodes& nodes = *ranks_.nodes();
  const std::unique_ptr<Runner> runner = ranks_.make_runner();
  runner->bind_thread();
  std::optional<uint64_t> flying;
  while (const auto message = nodes.receive()) {
    const StepPlan plan = taken(*message);
    runner->launch(plan);
    if (flying) runner->wait(*flying);
    flying = plan.step;
  }
  if (const std::string why = nodes.reason(); !why.empty()) throw std::runtime_error(why);
  if (flying) runner->wait(*flying);  // others may have been quicker with the last step
}

}  // namespace

std::unique_ptr<NodeWorker> NodeWorker::start(const EngineConfig& config,
                                              MakeConstraint constraint) {
  SKIFF_CHECK(config.nodes.node > 0, "node 0 plans");
  StartLog log{.quiet = config.quiet, .progress = config.progress};
  model::ModelConfig model = read_model(config);
  Resolved resolved = resolve(config, model);
  log.ledger.close("config");
  return std::make_unique<Worker>(std::move(model), std::move(resolved), config.failed, log,
                                  std::move(constraint));
}

}  // namespace skiff::engine

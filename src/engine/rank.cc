#include "engine/rank.h"

#include "base/log.h"
#include "engine/backend.h"
#include "model/slots.h"

namespace skiff::engine {
namespace {

void report(const model::MemoryPlan& plan) {
  spdlog::info("memory plan\n{}", plan.table());
  // FastDeploy's wording, because scripts look for this line.
  spdlog::info("Reset block num, the total_block_num:{}", plan.blocks);
}

void report_invariance(const Ops& ops) {
  SKIFF_CHECK(ops.batch_invariant());
  if (ops.device() == Device{})
    spdlog::info("--batch-invariant changes nothing: results of {} never depend on the batch",
                 ops.name());
}

Progress progress_of(const StartLog& log, bool reports) {
  if (reports && log.progress) return log.progress;
  return make_progress_bar(reports && !log.quiet ? "loading weights" : "");
}

}  // namespace

Rank::Rank(const Resolved& resolved, const model::ModelConfig& model, comm::Mesh& mesh,
           StartLog& log)
    : resolved_(resolved), mesh_(mesh) {
  const bool reports = mesh_.tp->rank() == 0;
  log.memory = minimum_need(resolved, model.spec);
  ops_ = make_ops(resolved);
  if (reports && !log.quiet && resolved.batch_invariant) report_invariance(*ops_);
  model::check_formats(model::slots_of(model.spec), resolved.precision, resolved.schemes, *ops_,
                       resolved.stored);
  memory_ = model::plan_memory(model.spec, memory_request(resolved, model.spec, *ops_));
  log.memory = memory_.table();
  if (reports && !log.quiet) report(memory_);
  log.ledger.close("plan");
  weights_ = model::load_model(resolved.model.folder, model,
                               {.precision = resolved.precision,
                                .schemes = resolved.schemes,
                                .format = resolved.model.format,
                                .dummy_seed = resolved.model.seed,
                                .progress = progress_of(log, reports)},
                               *ops_);
  log.ledger.close("load");
  kv_.emplace(model.spec, memory_.blocks, resolved.cache.block_size, resolved.precision.kv,
              ops_->device(), weights_.kv_scales);
  log.ledger.close("kv");
}

StepExecutor& Rank::make_executor(model::HostBlocks& host) {
  SKIFF_CHECK(!executor_, "the rank has its executor already");
  return executor_.emplace(
      weights_, *ops_, mesh_, kv_->layers(),
      StepExecutor::Options{.act = resolved_.precision.act,
                            .formats = quantized_formats(resolved_, weights_.spec, *ops_),
                            .limits = resolved_.limits,
                            .host = &host,
                            .captures = {.sizes = resolved_.captures}});
}

}  // namespace skiff::engine

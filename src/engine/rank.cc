#include "engine/rank.h"

#include <algorithm>

#include "arch/shard.h"
#include "base/log.h"
#include "engine/backend.h"
#include "model/mtp.h"
#include "model/slots.h"
#include "model/stored_forms.h"

namespace skiff::engine {
namespace {

void report(const model::MemoryPlan& plan, int ranks) {
  spdlog::info("memory plan{}\n{}", ranks > 1 ? fmt::format(" of each of {} ranks", ranks) : "",
               plan.table());
  // The wording is FastDeploy's, because scripts look for this line.
  spdlog::info("Reset block num, the total_block_num:{}", plan.blocks);
}

void report_invariance(const Ops& ops) {
  SKIFF_CHECK(ops.batch_invariant());
  if (ops.device() == Device{})
    spdlog::info("--batch-invariant changes nothing: results of {} never depend on the batch",
                 ops.name());
}

Progress progress_of(const StartLog& log) {
  if (log.progress) return log.progress;
  return make_progress_bar(log.quiet ? "" : "loading weights");
}

}  // namespace

Resolved settings_of_rank(const Resolved& all, const model::ModelConfig& model,
                          const model::RankOf& part) {
  const auto [rank, size] = part;
  SKIFF_CHECK_EQ(all.ranks, size);
  Resolved own = all;
  const int here = all.ranks_here(), place = rank - all.first_rank();
  if (own.device.kind == ComputeDevice::kCuda) own.device.index += static_cast<int8_t>(place);
  own.threads = std::max(1, all.threads * (place + 1) / here - all.threads * place / here);
  if (size > 1 && !all.stored.empty())
    own.stored = model::stored_forms(all.model.folder, model, part);
  if (own.drafter) take_part(*own.drafter, rank);
  return own;
}

Rank::Rank(const Resolved& resolved, const model::ModelConfig& model, comm::Mesh& mesh,
           StartLog& log, const Rank* twin)
    : mesh_(mesh), resolved_(settings_of_rank(resolved, model, part())) {
  const ModelSpec spec = *shard(model.spec, part().rank, part().size);
  log.memory = minimum_need(resolved_, spec);
  ops_ = make_ops(resolved_);
  if (!log.quiet && resolved_.batch_invariant) report_invariance(*ops_);
  model::check_formats(model::slots_of(spec, part().size), resolved_.precision, resolved_.schemes,
                       *ops_, resolved_.stored);
  const bool shares = twin && ops_->device() == Device{} && twin->ops_->device() == Device{};
  if (shares)
    memory_ = twin->memory_;
  else
    plan(spec, log);
  log.ledger.close("plan");
  weights_ = shares ? twin->weights_ : load(model, log);
  if (resolved_.drafter) draft_weights_ = shares ? twin->draft_weights_ : load_drafter(log.quiet);
  log.ledger.close("load");
  kv_.emplace(cached_spec(spec, resolved_.drafter), memory_.blocks, resolved_.cache.block_size,
              resolved_.precision.kv, ops_->device(), weights_->kv_scales);
  log.ledger.close("kv");
}

// All ranks have as many blocks as that with the least memory.
void Rank::plan(const ModelSpec& spec, StartLog& log) {
  memory_ = model::plan_memory(spec, memory_request(resolved_, spec, *ops_));
  memory_.blocks = static_cast<int>(mesh_.tp->least(memory_.blocks));
  memory_.kv = static_cast<size_t>(memory_.blocks) * memory_.kv_block;
  log.memory = memory_.table();
  if (!log.quiet) report(memory_, part().size);
}

std::shared_ptr<model::LoadedModel> Rank::load(const model::ModelConfig& model,
                                               const StartLog& log) {
  return std::make_shared<model::LoadedModel>(model::load_model(resolved_.model.folder, model,
                                                                {.precision = resolved_.precision,
                                                                 .schemes = resolved_.schemes,
                                                                 .format = resolved_.model.format,
                                                                 .dummy_seed = resolved_.model.seed,
                                                                 .progress = progress_of(log),
                                                                 .part = part()},
                                                                *ops_));
}

std::shared_ptr<const model::LoadedModel> Rank::load_drafter(bool quiet) {
  const DrafterSource& drafter = *resolved_.drafter;
  if (!quiet)
    spdlog::info("at most {} tokens are drafted by {}, method {}", resolved_.speculation->tokens,
                 drafter.folder, resolved_.speculation->method);
  auto loaded =
      std::make_shared<model::LoadedModel>(model::load_model(drafter.folder, drafter.config,
                                                             {.precision = resolved_.precision,
                                                              .format = resolved_.model.format,
                                                              .dummy_seed = resolved_.model.seed,
                                                              .progress = {},
                                                              .part = drafter.part},
                                                             *ops_));
  if (drafter.config.spec.joins)
    model::share_weights(loaded->spec, loaded->weights, weights_->weights);
  return loaded;
}

// A drafter that every rank has whole needs nobody.
comm::Mesh& Rank::mesh_of_drafter() {
  return resolved_.drafter->part.size == part().size ? mesh_ : alone_;
}

// Returns null if no model drafts.
ModelDrafter* Rank::make_drafter() {
  if (!draft_weights_) return nullptr;
  return &drafter_.emplace(*draft_weights_, *ops_, mesh_of_drafter(),
                           kv_->layers().subspan(weights_->spec.layers.size()),
                           ModelDrafter::Options{.act = resolved_.precision.act,
                                                 .formats = drafter_formats(resolved_, *ops_),
                                                 .limits = resolved_.limits,
                                                 .tokens = resolved_.speculation->tokens,
                                                 .vocabulary = resolved_.drafter->tokens});
}

StepExecutor& Rank::make_executor(model::HostBlocks& host) {
  SKIFF_CHECK(!executor_, "the rank has its executor already");
  return executor_.emplace(
      *weights_, *ops_, mesh_, kv_->layers(),
      StepExecutor::Options{
          .act = resolved_.precision.act,
          .formats = quantized_formats(resolved_, weights_->spec, *ops_),
          .limits = resolved_.limits,
          .host = &host,
          .captures = {.sizes = resolved_.captures,
                       .drafts = resolved_.speculation ? resolved_.speculation->tokens : 0},
          .drafter = make_drafter(),
          .forced_rate =
              resolved_.speculation ? resolved_.speculation->forced_rate : std::nullopt});
}

}  // namespace skiff::engine

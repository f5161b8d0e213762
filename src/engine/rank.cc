#include "engine/rank.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/backend.h"
#include "model/slots.h"
#include "model/stored_forms.h"

namespace skiff::engine {
namespace {

void report(const model::MemoryPlan& plan, const model::RankOf& part) {
  std::string whose;
  if (part.size > 1) whose = fmt::format(" of each of {} ranks", part.size);
  if (part.sharers > 1) whose += fmt::format(" of each of {} replicas", part.sharers);
  spdlog::info("memory plan{}\n{}", whose, plan.table());
  // The wording is FastDeploy's, because scripts look for this line.
  spdlog::info("Reset block num, the total_block_num:{}", plan.blocks);
}

void report_invariance(const Ops& ops) {
  SKIFF_CHECK(ops.batch_invariant());
  if (ops.device() == Device{})
    spdlog::info("--batch-invariant changes nothing: results of {} never depend on the batch",
                 ops.name());
}

void check_drafter_formats(const DrafterSource& drafter, const Precision& precision,
                           const Ops& ops) {
  model::check_formats(model::slots_of(drafter.spec, drafter.part.size), precision, drafter.schemes,
                       ops, drafter.stored, "--speculative-config: quantization");
}

// Verdicts that compare tokens need no host; drafts that texts give do.
bool chains(const Resolved& resolved) {
  if (!resolved.speculation) return false;
  const DraftRule rule = resolved.speculation->check.rule;
  return (rule == DraftRule::kTargetMatch || rule == DraftRule::kGreedy) &&
         !resolved.speculation->then_ngram();
}

Progress progress_of(const StartLog& log) {
  if (log.progress) return log.progress;
  return make_progress_bar(log.quiet ? "" : "loading weights");
}

}  // namespace

Resolved settings_of_rank(const Resolved& all, const model::ModelConfig& model,
                          const model::RankOf& part) {
  SKIFF_CHECK_EQ(all.ranks, part.size);
  Resolved own = all;
  const int here = all.ranks_here(), place = part.rank - all.first_rank();
  if (own.device.kind == ComputeDevice::kCuda) own.device.index += static_cast<int8_t>(place);
  own.threads = std::max(1, all.threads * (place + 1) / here - all.threads * place / here);
  if (!part.whole() && !all.stored.empty())
    own.stored = model::stored_forms(all.model.folder, model, part);
  if (own.drafter) take_part(*own.drafter, part.rank);
  return own;
}

Rank::Rank(const Resolved& resolved, const model::ModelConfig& model, comm::Mesh& mesh,
           StartLog& log, const Rank* twin)
    : mesh_(mesh), resolved_(settings_of_rank(resolved, model, part())) {
  const ModelSpec spec = *model::spec_of(model.spec, part());
  log.memory = minimum_need(resolved_, spec);
  ops_ = make_ops(resolved_);
  if (!log.quiet && resolved_.batch_invariant) report_invariance(*ops_);
  model::check_formats(model::slots_of(spec, part().size), resolved_.precision, resolved_.schemes,
                       *ops_, resolved_.stored);
  if (resolved_.drafter) check_drafter_formats(*resolved_.drafter, resolved_.precision, *ops_);
  shares_ = twin && ops_->device() == Device{} && twin->ops_->device() == Device{};
  if (shares_)
    memory_ = twin->memory_;
  else
    plan(spec, log);
  log.ledger.close("plan");
  weights_ = shares_ ? twin->weights_ : load(model, log);
  log.ledger.close("load");
  kv_.emplace(cached_spec(spec, resolved_.drafter), memory_.blocks, resolved_.cache.block_size,
              resolved_.precision.kv, ops_->device(), weights().kv_scales);
  log.ledger.close("kv");
}

// Replicas that share experts agree on the number of blocks before any of them takes memory, as
// ranks do.
void Rank::plan(const ModelSpec& spec, StartLog& log) {
  memory_ = model::plan_memory(spec, memory_request(resolved_, spec, *ops_));
  memory_.blocks = static_cast<int>(mesh_.experts->least(mesh_.tp->least(memory_.blocks)));
  memory_.kv = static_cast<size_t>(memory_.blocks) * memory_.kv_block;
  log.memory = memory_.table();
  if (!log.quiet) report(memory_, part());
}

std::shared_ptr<RankWeights> Rank::load(const model::ModelConfig& model, const StartLog& log) {
  if (resolved_.drafter && !log.quiet)
    spdlog::info(
        "at most {} tokens are drafted by {}, method {}{}", resolved_.speculation->model_tokens(),
        resolved_.drafter->folder, resolved_.speculation->method,
        resolved_.drafter->schemes.any() ? "; quantized: " + resolved_.drafter->schemes.describe()
                                         : "");
  return std::make_shared<RankWeights>(load_weights(resolved_, model, part(),
                                                    folders_of(resolved_, resolved_.model.folder),
                                                    progress_of(log), *ops_));
}

void Rank::read_weights(const model::ModelConfig& model, const WeightFolders& folders) {
  if (shares_) return;
  fresh_ = load_alike(*weights_, resolved_, model, part(), folders, *ops_);
}

void Rank::take_weights() {
  if (fresh_) overwrite(*weights_, std::move(*fresh_), *ops_);
  fresh_.reset();
}

// A drafter that every rank computes whole exchanges nothing with other ranks.
comm::Mesh& Rank::mesh_of_drafter() {
  return resolved_.drafter->part.size == part().size ? mesh_ : alone_;
}

// Returns null if no model drafts.
ModelDrafter* Rank::make_drafter() {
  if (!weights_->drafter) return nullptr;
  return &drafter_.emplace(*weights_->drafter, *ops_, mesh_of_drafter(),
                           kv_->layers().subspan(weights().spec.layers.size()),
                           ModelDrafter::Options{.act = resolved_.precision.act,
                                                 .formats = drafter_formats(resolved_, *ops_),
                                                 .limits = resolved_.limits,
                                                 .tokens = resolved_.speculation->model_tokens(),
                                                 .sampled = samples_drafts(resolved_),
                                                 .vocabulary = resolved_.drafter->tokens,
                                                 .captures = resolved_.captures});
}

StepExecutor& Rank::make_executor(model::HostBlocks& host) {
  SKIFF_CHECK(!executor_, "the rank has its executor already");
  ModelDrafter* drafter = make_drafter();
  return executor_.emplace(
      weights(), *ops_, mesh_, kv_->layers(),
      StepExecutor::Options{
          .act = resolved_.precision.act,
          .formats = quantized_formats(resolved_, weights().spec, *ops_),
          .limits = resolved_.limits,
          .host = &host,
          .captures = {.sizes = resolved_.captures,
                       .drafts = resolved_.speculation ? resolved_.speculation->tokens : 0},
          .drafter = drafter,
          .forced_rate = resolved_.speculation ? resolved_.speculation->forced_rate : std::nullopt,
          .check = resolved_.speculation ? resolved_.speculation->check : DraftCheck{},
          .logprobs = resolved_.logprobs,
          .chains = chains(resolved_)});
}

}  // namespace skiff::engine

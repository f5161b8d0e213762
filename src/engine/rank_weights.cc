#include "engine/rank_weights.h"

#include <filesystem>
#include <utility>

#include "base/load_error.h"
#include "model/eagle.h"
#include "model/mtp.h"
#include "model/overwrite.h"
#include "tensor/returned_memory.h"

namespace skiff::engine {
namespace {

namespace fs = std::filesystem;

model::LoadOptions options_of(const Resolved& own) {
  return {.precision = own.precision,
          .format = own.model.format,
          .dummy_seed = own.model.seed,
          .progress = {}};
}

model::LoadedModel load_drafter(const Resolved& own, const model::LoadedModel& served,
                                const std::string& folder, Ops& ops) {
  const DrafterSource& drafter = *own.drafter;
  model::LoadOptions options = options_of(own);
  options.schemes = drafter.schemes;
  options.part = drafter.part;
  model::LoadedModel loaded = model::load_model(folder, drafter.config, options, ops);
  if (drafter.config.spec.joins) model::share_weights(loaded.spec, loaded.weights, served.weights);
  return loaded;
}

// The tokens that a head's logits are of are read when the server starts.
void check_tokens(const Resolved& own, const std::string& folder) {
  const DrafterSource& drafter = *own.drafter;
  if (drafter.tokens.empty()) return;
  if (model::eagle_tokens(folder, drafter.config.spec) != drafter.tokens)
    fail_load(
        "{}: what drafts has logits of other tokens than when this server started: it needs a "
        "server of its own",
        folder);
}

void need_same_form(const model::LoadedModel& present, const model::LoadedModel& fresh) {
  if (const Status same = model::check_same_form(present, fresh); !same)
    throw LoadError(same.error().what);
}

size_t give_back(const model::LoadedModel& model) {
  size_t bytes = 0;
  for (const Buffer& buffer : model.buffers) bytes += skiff::give_back(buffer);
  return bytes;
}

}  // namespace

WeightFolders folders_of(const Resolved& resolved, const std::string& folder) {
  if (!resolved.drafter) return {.model = folder, .drafter = {}};
  const std::string& drafter = resolved.drafter->folder;
  if (folder == resolved.model.folder) return {.model = folder, .drafter = drafter};
  const fs::path within = fs::absolute(drafter).lexically_normal().lexically_relative(
      fs::absolute(resolved.model.folder).lexically_normal());
  if (within.empty() || *within.begin() == "..") return {.model = folder, .drafter = drafter};
  return {.model = folder, .drafter = (fs::path(folder) / within).lexically_normal().string()};
}

RankWeights load_weights(const Resolved& own, const model::ModelConfig& config,
                         const model::RankOf& part, const WeightFolders& folders,
                         const Progress& progress, Ops& ops) {
  model::LoadOptions options = options_of(own);
  options.schemes = own.schemes;
  options.progress = progress;
  options.part = part;
  RankWeights out{.model = model::load_model(folders.model, config, options, ops), .drafter = {}};
  if (own.drafter) out.drafter = load_drafter(own, out.model, folders.drafter, ops);
  return out;
}

// What a module shares is compared where it lies in the end: in the weights that stay.
RankWeights load_alike(const RankWeights& present, const Resolved& own,
                       const model::ModelConfig& config, const model::RankOf& part,
                       const WeightFolders& folders, Ops& ops) {
  if (own.drafter) check_tokens(own, folders.drafter);
  RankWeights fresh = load_weights(own, config, part, folders, {}, ops);
  need_same_form(present.model, fresh.model);
  if (present.drafter) need_same_form(*present.drafter, *fresh.drafter);
  return fresh;
}

void overwrite(RankWeights& present, RankWeights fresh, Ops& ops) {
  model::overwrite(present.model, std::move(fresh.model), ops);
  if (present.drafter) model::overwrite(*present.drafter, std::move(*fresh.drafter), ops);
}

size_t give_back(const RankWeights& weights) {
  return give_back(weights.model) + (weights.drafter ? give_back(*weights.drafter) : 0);
}

}  // namespace skiff::engine

#include "engine/drafter_source.h"

#include <filesystem>

#include "arch/shard.h"
#include "base/load_error.h"
#include "draft/methods.h"
#include "engine/resolve_checks.h"
#include "model/eagle.h"
#include "model/kv_cache_dtype.h"
#include "model/mtp.h"
#include "model/stored_forms.h"

namespace skiff::engine {
namespace {

namespace fs = std::filesystem;

DrafterSource draft_model(const std::string& folder, const model::ModelConfig& model) {
  if (!fs::exists(fs::path(folder) / "config.json"))
    fail_load("--speculative-config: model {} has no config.json; it must be the folder of a model",
              folder);
  DrafterSource out{.folder = folder, .config = model::read_model_config(folder)};
  if (out.config.pooling)
    fail_load("--speculative-config: the model in {} is pooled and generates no tokens", folder);
  if (out.config.spec.vocab != model.spec.vocab)
    fail_load(
        "--speculative-config: the model in {} has a vocabulary of {} tokens, the served model one "
        "of {}; a draft model must have the same tokens",
        folder, out.config.spec.vocab, model.spec.vocab);
  return out;
}

DrafterSource mtp_module(const std::string& folder, const std::string& given,
                         const model::ModelConfig& model) {
  model::MtpModule found = model::find_mtp(folder, given, model);
  return {.folder = std::move(found.folder), .config = std::move(found.config)};
}

DrafterSource eagle_head(const draft::Settings& settings, const model::ModelConfig& model) {
  const bool third = settings.method == draft::kEagle3;
  DrafterSource out{.folder = settings.model,
                    .config = model::find_eagle(settings.model, third, model)};
  if (third && model::has_weight_files(out.folder))
    out.tokens = model::eagle_tokens(out.folder, out.config.spec);
  return out;
}

DrafterSource source_of(const draft::Settings& settings, const std::string& folder,
                        const model::ModelConfig& model) {
  if (settings.method == draft::kMtp) return mtp_module(folder, settings.model, model);
  if (settings.model.empty())
    fail_load("--speculative-config: method {} needs \"model\", the folder of what drafts",
              settings.method);
  if (settings.method == draft::kDraftModel) return draft_model(settings.model, model);
  return eagle_head(settings, model);
}

// The experts that are always on are computed apart where their scheme is another one than that of
// the routed ones.
void quantize(DrafterSource& drafter, const std::string& name) {
  constexpr std::string_view kKey = "--speculative-config: quantization";
  ModelSpec& spec = drafter.config.spec;
  drafter.schemes = model::choose_schemes(name, "", spec, kKey);
  check_schemes(drafter.schemes, drafter.config.quantization, kKey);
  if (drafter.schemes.of(model::LayerKind::kExperts) !=
      drafter.schemes.of(model::LayerKind::kDense))
    separate_shared_experts(spec);
}

// A block holds the layers of both models, so the drafter must suit the format of the KV cache,
// too.
void check_cache(const ModelSpec& spec, const Precision& precision) {
  if (precision.kv.fixed)
    fail_load(
        "--speculative-config: a drafter has no calibrated scales of its own for the KV cache; add "
        "--kv-cache-scales token");
  if (const auto refused = model::refuse_kv_cache(spec, precision.kv.dtype))
    fail_load("--kv-cache-dtype, in the model that drafts: {}", refused->what);
}

// Lets the drafter be cut among the ranks of the served model, whose experts it deals out alike.
void cut(DrafterSource& drafter, const model::ModelConfig& model, int ranks) {
  ModelSpec& spec = drafter.config.spec;
  if (ranks > 1 && deals_experts_whole(model.spec)) deal_experts_whole(spec);
  if (const auto part = shard(spec, 0, ranks); !part)
    fail_load(
        "--speculative-config: what drafts, in {}: {}{}", drafter.folder, part.error().what,
        spec.joins ? "" : "; with \"draft_tensor_parallel_size\": 1 every rank computes all of it");
  drafter.part.size = ranks;
}

ModelSpec with_layers(ModelSpec spec, const std::vector<Layer>& more) {
  spec.layers.insert(spec.layers.end(), more.begin(), more.end());
  return spec;
}

}  // namespace

std::optional<DrafterSource> find_drafter(const draft::Settings& settings,
                                          const std::string& folder,
                                          const model::ModelConfig& model,
                                          const Precision& precision, int ranks) {
  if (!draft::has_weights(settings.method)) return std::nullopt;
  DrafterSource out = source_of(settings, folder, model);
  quantize(out, settings.quantization);
  check_cache(out.config.spec, precision);
  cut(out, model, settings.ranks == 1 ? 1 : ranks);
  take_part(out, 0);
  return out;
}

void take_part(DrafterSource& drafter, int rank) {
  drafter.part.rank = drafter.part.size == 1 ? 0 : rank;
  drafter.spec = *shard(drafter.config.spec, drafter.part.rank, drafter.part.size);
  if (model::has_weight_files(drafter.folder))
    drafter.stored = model::stored_forms(drafter.folder, drafter.config, drafter.part);
}

ModelSpec cached_spec(const ModelSpec& spec, const std::optional<DrafterSource>& drafter) {
  return drafter ? with_layers(spec, drafter->spec.layers) : spec;
}

ModelSpec whole_cached_spec(const ModelSpec& spec, const std::optional<DrafterSource>& drafter) {
  return drafter ? with_layers(spec, drafter->config.spec.layers) : spec;
}

}  // namespace skiff::engine

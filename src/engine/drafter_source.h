// engine/drafter_source.h -- which model drafts for the one that is served, found at start-up.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "draft/settings.h"
#include "message/request.h"
#include "model/loader.h"
#include "model/memory_plan.h"

namespace skiff::engine {

// What loads a drafter (engine/model_drafter.h). It computes with the dtypes of the served model.
// Where several ranks compute that, they either cut the drafter among them in the same way, or
// every rank computes all of it, from the same bits and without exchanges.
struct DrafterSource {
  std::string folder;
  model::ModelConfig config;  // describes the whole drafter
  model::RankOf part;         // what a rank has of it: of resolve(), the first; size 1: all of it
  ModelSpec spec;             // describes that part
  std::vector<model::StoredForm> stored;  // its slots' forms in a quantized checkpoint, or empty
  std::vector<Token> tokens = {};         // those that its logits stand for, in order; empty: all
  model::SchemeChoice schemes = {};       // how its weights are quantized while they are loaded
};

// Reads the drafter that `settings` name, for `model` in `folder`, which `ranks` ranks compute.
// Throws a LoadError where its vocabulary has another size, where it cannot be computed beside the
// model, or where it cannot be cut among the ranks. Returns nothing for methods without weights.
std::optional<DrafterSource> find_drafter(const draft::Settings& settings,
                                          const std::string& folder,
                                          const model::ModelConfig& model,
                                          const Precision& precision, int ranks);

// Makes `drafter` that of another rank.
void take_part(DrafterSource& drafter, int rank);

// Returns the spec of a rank with the drafter's layers behind its own: those that its part of a
// cached block has. The parts of all ranks have the same size.
ModelSpec cached_spec(const ModelSpec& spec, const std::optional<DrafterSource>& drafter);
// Returns the spec of the whole model with the layers of the whole drafter behind its own: those
// that a block has in the form of one rank (model/block_form.h).
ModelSpec whole_cached_spec(const ModelSpec& spec, const std::optional<DrafterSource>& drafter);

}  // namespace skiff::engine

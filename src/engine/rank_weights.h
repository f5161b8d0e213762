// engine/rank_weights.h -- the weights that one rank computes with: its part of the model that is
// served, and of the model or module that drafts for it.
#pragma once
#include <optional>
#include <string>

#include "engine/resolved.h"
#include "model/loader.h"

namespace skiff::engine {

struct RankWeights {
  model::LoadedModel model;
  std::optional<model::LoadedModel> drafter;  // a module refers to weights of `model`

  size_t bytes() const { return model.bytes + (drafter ? drafter->bytes : 0); }
};

// Where weights are read.
struct WeightFolders {
  std::string model, drafter;  // `drafter` is empty where nothing drafts
};

// Returns the folders that weights are read from when the model that `resolved` describes is served
// from `folder` instead: what drafts moves with the model where it lies in the model's folder or
// below it, as text has it, and stays where it is otherwise.
WeightFolders folders_of(const Resolved& resolved, const std::string& folder);

// Loads the part of a rank, whose settings are `own`, of the whole model that `config` describes,
// in the form that `ops` computes with. `progress` hears of the model's bytes. Throws a LoadError.
RankWeights load_weights(const Resolved& own, const model::ModelConfig& config,
                         const model::RankOf& part, const WeightFolders& folders,
                         const Progress& progress, Ops& ops);

// Reads weights as load_weights() does that can be put in the place of `present`
// (model/overwrite.h) and changes nothing. Throws a LoadError that names the first weight that has
// another form there.
RankWeights load_alike(const RankWeights& present, const Resolved& own,
                       const model::ModelConfig& config, const model::RankOf& part,
                       const WeightFolders& folders, Ops& ops);

// Puts what load_alike() has read in the place of the present weights. Nothing should fail. For the
// thread that drives `ops`, between steps.
void overwrite(RankWeights& present, RankWeights fresh, Ops& ops);

// Lets the system have the memory of all weights; their addresses stay. Returns the bytes that
// left.
size_t give_back(const RankWeights& weights);

}  // namespace skiff::engine

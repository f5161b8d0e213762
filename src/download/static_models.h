// download/static_models.h -- the names of PaddleNLP's static models, which are Paddle's inference
// graphs and are not run here, and the checkpoints that are run in their place.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace skiff::download {

struct StaticModel {
  std::string_view name;
  std::string_view checkpoint;  // the model whose weights the graph was made of
  std::string_view flags = {};  // what makes `skiff serve` keep and use them alike
};

std::span<const StaticModel> static_models();

// Finds the model that a name means, or the end of a path such as static/TAG/NAME/model. Null for
// all others.
const StaticModel* find_static_model(std::string_view path);

// Says what the model is, and what to use instead.
std::string advice_on(const StaticModel& model);

// Returns the file of an inference graph, or of its weights, in a folder or in rank_N below it, as
// a path from the folder on; empty where there is none.
std::string graph_in(const std::string& folder);

// Says what lies in such a folder, and what to use instead, by name if the folder's name is known.
std::string advice_on_graph(const std::string& folder, const std::string& file);

}  // namespace skiff::download

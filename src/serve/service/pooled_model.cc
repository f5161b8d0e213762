#include "serve/service/pooled_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace skiff::service {
namespace {

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

bool PooledModel::scores_pairs() const { return task == kEmbed || width == 1 || judges_pairs; }

Status check_dimensions(const PooledModel& model, int dimensions) {
  const auto refuse = [](std::string what) {
    return Error{Code::kInvalid, std::move(what), "dimensions"};
  };
  if (dimensions == 0) return ok();
  if (!model.matryoshka)
    return refuse(
        "dimensions cannot be chosen: the model does not say that shorter vectors of it are "
        "embeddings. Leave it out, or start the server with --override-pooler-config "
        "'{\"is_matryoshka\": true}'");
  if (dimensions > model.width)
    return refuse(
        fmt::format("dimensions is {}; the model's embeddings have {}", dimensions, model.width));
  if (model.dimensions.empty() || std::ranges::count(model.dimensions, dimensions) > 0) return ok();
  std::string known;
  for (const int n : model.dimensions) known += (known.empty() ? "" : ", ") + std::to_string(n);
  return refuse(fmt::format("dimensions is {}; the model was trained for {}", dimensions, known));
}

std::vector<float> embedding_of(std::vector<float> pooled, int dimensions, bool normalize) {
  if (dimensions > 0 && static_cast<size_t>(dimensions) < pooled.size())
    pooled.resize(static_cast<size_t>(dimensions));
  const double length = std::sqrt(dot(pooled, pooled));
  if (!normalize || length == 0) return pooled;
  for (float& x : pooled) x = static_cast<float>(static_cast<double>(x) / length);
  return pooled;
}

std::vector<float> class_scores(std::vector<float> pooled, bool activation) {
  if (!activation || pooled.empty()) return pooled;
  if (pooled.size() == 1) return {static_cast<float>(sigmoid(static_cast<double>(pooled[0])))};
  const double top = static_cast<double>(*std::ranges::max_element(pooled));
  double sum = 0;
  for (const float x : pooled) sum += std::exp(static_cast<double>(x) - top);
  for (float& x : pooled) x = static_cast<float>(std::exp(static_cast<double>(x) - top) / sum);
  return pooled;
}

float pair_score(const std::vector<float>& pooled, bool activation) {
  SKIFF_CHECK(!pooled.empty(), "a pair without scores");
  const double first = pooled.size() > 1 ? static_cast<double>(pooled.front()) : 0;
  const double margin = static_cast<double>(pooled.size() > 1 ? pooled[1] : pooled[0]) - first;
  return static_cast<float>(activation ? sigmoid(margin) : margin);
}

float cosine(const std::vector<float>& a, const std::vector<float>& b) {
  const double lengths = std::sqrt(dot(a, a)) * std::sqrt(dot(b, b));
  return lengths == 0 ? 0 : static_cast<float>(dot(a, b) / lengths);
}

}  // namespace skiff::service

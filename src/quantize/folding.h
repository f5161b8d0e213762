// quantize/folding.h -- finds factors for the inputs of a layer's weights and folds each into what
// produces the inputs: a norm, the values of attention, or the upper half of a gated product.
#pragma once
#include "quantize/fold.h"
#include "quantize/inputs.h"
#include "quantize/settings.h"

namespace skiff::quantize {

// What was changed besides the weights of linears that are rounded.
struct Folded {
  std::vector<bool> plains;  // for each of LayerMap::plains (norms and routers) whether it changed
  std::vector<bool> units;   // weights or biases
  int64_t kept = 0, tried = 0;  // searches that found factors, and all of them
  int64_t shifts = 0;           // layers whose values were shifted
};

class Folding {
 public:
  // Changes `values`. Norms and routers are rounded to the dtype in which they are stored, and the
  // factors follow from the rounded norm, so that only a router's own rounding is not made up for.
  Folding(const Settings& settings, const LayerMap& map, LayerValues& values, const ModelSpec& spec,
          Ops& ops);
  // For one stage of stages_of(), with the inputs of its weights.
  void fold(const std::vector<size_t>& stage, const Inputs& inputs);
  const Folded& folded() const { return folded_; }

 private:
  void fold_norm(std::string_view norm, const std::vector<size_t>& stage, const Inputs& inputs);
  void fold_values(size_t out, const Inputs& inputs);
  void fold_latent_values(size_t out, const Inputs& inputs);
  void fold_up(size_t down, const Inputs& inputs);
  FoldConsumer consumer(size_t linear, size_t unit, const Inputs& inputs, int64_t tokens) const;
  FoldChoice search(const FoldProblem& problem) const;
  std::vector<float> factors_of(FoldChoice choice);
  void shift_values(FoldProblem problem, size_t out, size_t value, const Matrix& inputs,
                    FoldChoice& choice);
  float as_bias(float x, size_t unit) const;
  void scale_columns(size_t unit, std::span<const float> factors, int64_t col);
  void shrink_rows(size_t unit, std::span<const float> factors, int64_t row);

  const Settings& settings_;
  const LayerMap& map_;
  LayerValues& values_;
  const ModelSpec& spec_;
  Ops& ops_;
  Folded folded_;
};

}  // namespace skiff::quantize

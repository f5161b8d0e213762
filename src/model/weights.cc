#include "model/weights.h"

namespace skiff::model {

ModelWeights empty_weights(const ModelSpec& spec) {
  ModelWeights weights;
  for (const Layer& layer : spec.layers) {
    LayerWeights& w = weights.layers.emplace_back();
    std::visit([&]<class M>(const M&) { w.mixer = Weights<M>{}; }, layer.mixer);
    std::visit([&]<class F>(const F&) { w.ffn = Weights<F>{}; }, layer.ffn);
  }
  return weights;
}

}  // namespace skiff::model

// quantize/layer.h -- one layer of the model in float32, and passes of token sequences through it.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "model/decoder.h"
#include "model/kv_cache.h"
#include "quantize/model_file.h"
#include "quantize/tap_ops.h"

namespace skiff::quantize {

// The values of a layer, which methods change: factors are folded in, weights rounded.
struct LayerValues {
  std::vector<Matrix> units;               // as LayerMap::units
  std::vector<std::vector<float>> biases;  // one for each unit; empty where it has none
  std::vector<std::vector<float>> plains;  // as LayerMap::plains
};
// Throws a LoadError that names the tensor where a value is not finite.
LayerValues read_layer(const LayerMap& map);

// Rows of the residual stream, of each sequence apart.
using Stream = std::vector<Matrix>;

// Inputs of a weight: `linear` is an index of LayerMap::linears.
using WatchInputs =
    std::function<void(size_t linear, int64_t expert, const float* rows, int64_t count)>;

// Runs sequences through one layer with the model's own decoder. Results do not depend on threads.
class LayerRunner {
 public:
  // `base` computes in float32. map, values and base must outlive it. `inputs`: for each linear how
  // its activations are rounded.
  LayerRunner(const LayerMap& map, const LayerValues& values, const ModelSpec& spec, Ops& base,
              std::vector<std::optional<RoundedInput>> inputs = {});
  ~LayerRunner();

  // Takes over the values of these linears once more.
  void refresh_linear(size_t linear);
  void refresh_all();
  // Replaces the stream by what leaves the layer. With `stop_after`, an index of linears, it stays
  // and the pass ends when the inputs of that weight have been shown.
  void run(Stream& stream, const WatchInputs& watch = {},
           std::optional<size_t> stop_after = std::nullopt, const TapOps::WatchKv& watch_kv = {});

 private:
  struct Prepared;
  void run_group(Stream& stream, size_t first, size_t count, TapOps& tap, const WatchInputs& watch,
                 std::optional<size_t> stop_after, const TapOps::WatchKv& watch_kv);

  const LayerMap& map_;
  const LayerValues& values_;
  Ops& base_;
  ModelSpec spec_;  // describes this layer alone
  std::vector<std::optional<RoundedInput>> inputs_;
  std::unique_ptr<Prepared> prepared_;
};

}  // namespace skiff::quantize

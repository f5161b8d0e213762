// quantize/layer_job.h -- rounds the weights of one layer by the method of the settings.
#pragma once
#include "quantize/folding.h"

namespace skiff::quantize {

struct LayerOutcome {
  std::vector<std::optional<Rounded>> rounded;  // one for each unit; none: it stays plain
  std::vector<float> largest;  // for each linear what a static scale of its inputs covers
  Folded folded;
  int64_t few_tokens = 0;         // units that saw too few tokens and were rounded to nearest
  int64_t unfactored = 0;         // units whose moments could not be factored, the same
  double error = 0, nearest = 0;  // squared errors of outputs on the calibration data, summed:
                                  // as rounded, and rounded to nearest with the same steps
};

class LayerJob {
 public:
  // Changes `values` to what the rounded layer computes with.
  LayerJob(const Settings& settings, const LayerMap& map, LayerValues& values,
           const ModelSpec& spec, Ops& ops);
  // `stream` is what enters the layer on the calibration data; it is not changed, and not needed by
  // methods without calibration.
  LayerOutcome run(Stream& stream);

 private:
  Inputs capture(LayerRunner& runner, Stream& stream, const std::vector<size_t>& stage) const;
  void round_alone(size_t unit);
  void round_plainly();
  void round_stage(const std::vector<size_t>& stage, const Inputs& inputs);
  float range_of(size_t linear, const Inputs& inputs) const;
  void round_unit(size_t unit, const Square& moments);
  void store(size_t unit, Rounded rounded);

  const Settings& settings_;
  const LayerMap& map_;
  LayerValues& values_;
  const ModelSpec& spec_;
  Ops& ops_;
  LayerOutcome outcome_;
};

// How the activations of each linear are rounded once its weights are.
std::vector<std::optional<RoundedInput>> rounded_inputs(const Settings& settings,
                                                        const LayerMap& map,
                                                        const LayerOutcome& outcome);

}  // namespace skiff::quantize

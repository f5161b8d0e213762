#include "quantize/layer_job.h"

#include "base/log.h"
#include "quantize/input_range.h"

namespace skiff::quantize {

std::vector<std::optional<RoundedInput>> rounded_inputs(const Settings& settings,
                                                        const LayerMap& map,
                                                        const LayerOutcome& outcome) {
  std::vector<std::optional<RoundedInput>> inputs(map.linears.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool plain = settings.ignored(map.units[map.linears[i].pieces.at(0).unit].name);
    if (plain || !settings.format.input) continue;
    inputs[i] = {.format = *settings.format.input,
                 .largest = outcome.largest.empty() ? 0 : outcome.largest[i]};
  }
  return inputs;
}

LayerJob::LayerJob(const Settings& settings, const LayerMap& map, LayerValues& values,
                   const ModelSpec& spec, Ops& ops)
    : settings_(settings), map_(map), values_(values), spec_(spec), ops_(ops) {
  outcome_.rounded.resize(map.units.size());
  if (settings.format.input && settings.format.input->scales == InputFormat::kStatic)
    outcome_.largest.resize(map.linears.size());
  outcome_.folded.plains.resize(map.plains.size());
  outcome_.folded.units.resize(map.units.size());
}

LayerOutcome LayerJob::run(Stream& stream) {
  if (!settings_.target->calibrated()) {
    round_plainly();
    return std::move(outcome_);
  }
  LayerRunner runner(map_, values_, spec_, ops_);
  const auto stages = stages_of(map_);
  if (settings_.target->method != Method::kGptq) {
    Folding folding(settings_, map_, values_, spec_, ops_);
    for (const auto& stage : stages) {
      folding.fold(stage, capture(runner, stream, stage));
      runner.refresh_all();
    }
    outcome_.folded = folding.folded();
  }
  for (const auto& stage : stages) {
    round_stage(stage, capture(runner, stream, stage));
    for (const size_t linear : stage) runner.refresh_linear(linear);
  }
  return std::move(outcome_);
}

Inputs LayerJob::capture(LayerRunner& runner, Stream& stream,
                         const std::vector<size_t>& stage) const {
  Inputs inputs(map_);
  const auto watch = [&](size_t linear, int64_t expert, const float* rows, int64_t count) {
    if (std::ranges::find(stage, linear) != stage.end()) inputs.add(linear, expert, rows, count);
  };
  runner.run(stream, watch, stage.back());
  return inputs;
}

void LayerJob::store(size_t unit, Rounded rounded) {
  values_.units[unit] = values_of(rounded);
  outcome_.rounded[unit] = std::move(rounded);
}

// Without inputs: steps that cover the values, or that lose least where clipping is wanted.
void LayerJob::round_alone(size_t unit) {
  const Matrix& w = values_.units[unit];
  const WeightFormat format = settings_.format_for(w.cols);
  const bool clip = settings_.clip && format.block_out == 1 && format.dtype != DType::kF8E4M3;
  store(unit,
        round_with(w, format,
                   clip ? clipped_steps(w, format, settings_.threads) : covering_steps(w, format),
                   settings_.threads));
}

void LayerJob::round_plainly() {
  for (size_t unit = 0; unit < map_.units.size(); ++unit)
    if (!settings_.ignored(map_.units[unit].name)) round_alone(unit);
}

void LayerJob::round_stage(const std::vector<size_t>& stage, const Inputs& inputs) {
  Square moments;
  std::vector<std::pair<int64_t, int64_t>> known;
  for (const size_t linear : stage) {
    if (!outcome_.largest.empty()) outcome_.largest[linear] = range_of(linear, inputs);
    for (const size_t unit : units_of(map_.linears[linear])) {
      if (settings_.ignored(map_.units[unit].name)) continue;
      // Experts that few tokens reach have moments of low rank, which say little about others.
      const Matrix x = inputs.of_unit(linear, unit);
      const bool expert = map_.linears[linear].slot.experts > 0;
      if (x.rows == 0 || (expert && x.rows < settings_.min_tokens)) {
        round_alone(unit);
        ++outcome_.few_tokens;
        continue;
      }
      auto key = inputs.key_of(linear, unit);
      if (key != known) {
        moments = second_moments(x, ops_, settings_.threads);
        known = std::move(key);
      }
      round_unit(unit, moments);
    }
  }
}

// For a static scale. Layouts that have one have it for layers without experts, whose units all
// have the same inputs.
float LayerJob::range_of(size_t linear, const Inputs& inputs) const {
  std::vector<const Matrix*> weights;
  const std::vector<size_t> units = units_of(map_.linears[linear]);
  weights.reserve(units.size());
  for (const size_t unit : units) weights.push_back(&values_.units[unit]);
  const Matrix x = inputs.of_unit(linear, units.at(0));
  return settings_.clip ? input_range(x, weights, settings_.threads) : largest_magnitude(x);
}

void LayerJob::round_unit(size_t unit, const Square& moments) {
  const Matrix& w = values_.units[unit];
  const WeightFormat format = settings_.format_for(w.cols);
  const int threads = settings_.threads;
  std::vector<Step> steps =
      settings_.clip ? calibrated_steps(w, format, moments, threads) : covering_steps(w, format);
  const auto error_of = [&](const Rounded& rounded) {
    Matrix difference = values_of(rounded);
    for (size_t i = 0; i < difference.values.size(); ++i) difference.values[i] -= w.values[i];
    return sum_of(output_errors(difference, moments, threads));
  };
  Rounded nearest = round_with(w, format, steps, threads);
  outcome_.nearest += error_of(nearest);
  if (!settings_.compensate) {
    outcome_.error += error_of(nearest);
    return store(unit, std::move(nearest));
  }
  GptqResult result = gptq(w, format, steps, moments, settings_.gptq, threads);
  if (!result.factored) ++outcome_.unfactored;
  outcome_.error += error_of(result.rounded);
  store(unit, std::move(result.rounded));
}

}  // namespace skiff::quantize

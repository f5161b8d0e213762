#include <algorithm>
#include <chrono>

#include "quantize/inputs.h"
#include "quantize/job.h"

namespace skiff::quantize {
namespace {

int64_t tokens_in(const std::vector<Sequence>& sequences) {
  int64_t tokens = 0;
  for (const Sequence& sequence : sequences) tokens += std::ssize(sequence.tokens);
  return tokens;
}

// Multiplications and additions per second of this backend in float32.
double measured_rate(Ops& ops) {
  constexpr int64_t kSize = 384;
  Matrix x(kSize, kSize);
  for (size_t i = 0; i < x.values.size(); ++i) x.values[i] = static_cast<float>(i % 97) / 97 - 0.5f;
  product(x, x, ops);  // threads and memory are there now
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 4; ++i) product(x, x, ops);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return 4 * 2.0 * kSize * kSize * kSize / std::max(1e-6, seconds);
}

struct Costs {
  double active = 0;   // weights that one token passes
  double weights = 0;  // all weights
  double scalar = 0;   // operations of the method's own loops
  double trials = 0;   // operations of products in searches
  double widest = 0;   // inputs of a token that are kept at a time
  double largest = 0;  // inputs of a weight
};

Costs costs_of(const LayerMap& map, const Settings& settings, const Layer& layer) {
  Costs costs;
  const auto* moe = std::get_if<Moe>(&layer.ffn);
  for (const LinearSlot& linear : map.linears) {
    const double experts = linear.slot.experts ? static_cast<double>(linear.slot.experts) : 1;
    const double seen = linear.slot.experts && moe ? moe->router.per_token() : 1;
    const double one = static_cast<double>(linear.slot.out * linear.slot.in);
    const auto in = static_cast<double>(linear.slot.in);
    costs.active += one * seen;
    costs.weights += one * experts;
    costs.widest = std::max(costs.widest, in * seen);
    costs.largest = std::max(costs.largest, in);
    const double wide = settings.format_for(linear.slot.in).block_in
                            ? settings.format_for(linear.slot.in).block_in
                            : in;
    if (settings.target->calibrated())
      costs.scalar += one * experts * kClipTries * (settings.clip ? wide : 0);
    if (settings.compensate) costs.scalar += experts * (one * in * 5 + in * in * in * 2 / 3);
    if (settings.target->calibrated() && settings.target->method != Method::kGptq)
      costs.trials += 2 * one * experts * 42 * (experts > 1 ? 128 : 512);
  }
  return costs;
}

size_t rounded_bytes(const LayerMap& map, const Settings& settings) {
  size_t total = 0;
  for (const Unit& unit : map.units) {
    const WeightFormat format = settings.format_for(unit.in);
    total += settings.ignored(unit.name)
                 ? static_cast<size_t>(unit.out * unit.in) * 2
                 : static_cast<size_t>(unit.out * unit.in * bits(format.dtype) / 8 +
                                       num_blocks(unit.out, format.block_out) *
                                           num_blocks(unit.in, format.block_in) * 2);
  }
  return total;
}

}  // namespace

Estimate estimate(const ModelFile& file, const Settings& settings, const Data& data, Ops& ops) {
  const auto calibration = static_cast<double>(tokens_in(data.calibration));
  const auto heldout = static_cast<double>(tokens_in(data.heldout));
  const bool calibrated = settings.target->calibrated();
  // A pass captures each stage; factors need captures of their own.
  const double captures = settings.target->method == Method::kGptq ? 1.6 : calibrated ? 3.2 : 0;
  const double passes = calibrated || settings.kv ? captures + 1 : 0;
  const double rate = measured_rate(ops);
  const double scalar_rate = 1e9 * settings.threads;
  Estimate out;
  double memory = 0, layers = 0;
  for (size_t i = 0; i < file.spec().layers.size(); ++i) {
    const LayerMap map = file.layer(static_cast<int>(i));
    const Costs costs = costs_of(map, settings, file.spec().layers[i]);
    out.seconds += (2 * costs.active * (passes * calibration + 2 * heldout) + costs.trials) / rate +
                   costs.scalar / scalar_rate + costs.weights / 5e7;
    double own = 4 * 4 * costs.weights;
    if (calibrated) own += 4 * costs.widest * calibration + 20 * costs.largest * costs.largest;
    memory = std::max(memory, own);
    out.output += rounded_bytes(map, settings);
    layers += costs.weights;
  }
  const double embedding =
      static_cast<double>(file.spec().vocab) * static_cast<double>(file.spec().hidden);
  if (heldout > 0) memory = std::max(memory, 4 * 2 * embedding);
  memory += 4 * static_cast<double>(file.spec().hidden) * (calibration + 2 * heldout);
  out.memory = static_cast<size_t>(memory);
  out.output +=
      static_cast<size_t>(std::max(0.0, static_cast<double>(file.checkpoint().total_bytes()) *
                                            (embedding / (embedding + layers))));
  return out;
}

}  // namespace skiff::quantize

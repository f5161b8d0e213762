// ops/suite/sampling.h -- the parameters of draws, and the distribution that they define.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/suite/suite.h"

namespace skiff::suite {

struct Params {
  float temperature = 1, top_p = 1, min_p = 0;
  int32_t top_k = 0;
};

inline SampleBatch make_batch(Workspace& ws, const std::vector<Params>& params,
                              const std::vector<int64_t>& seed, const std::vector<int64_t>& draw) {
  std::vector<float> temperature, top_p, min_p;
  std::vector<int32_t> top_k;
  for (const Params& p : params) {
    temperature.push_back(p.temperature);
    top_p.push_back(p.top_p);
    min_p.push_back(p.min_p);
    top_k.push_back(p.top_k);
  }
  return {.temperature = ws.floats(temperature),
          .top_p = ws.floats(top_p),
          .min_p = ws.floats(min_p),
          .top_k = ws.ints(top_k),
          .seed = ws.longs(seed),
          .draw = ws.longs(draw)};
}

struct Likely {
  double p;
  int32_t id;
};

inline void renormalise(std::vector<Likely>& entries) {
  double sum = 0;
  for (const Likely& e : entries) sum += e.p;
  for (Likely& e : entries) e.p /= sum;
}

// The tokens that may be drawn and their probabilities, most likely first, by the definition in
// ops.h.
inline std::vector<Likely> distribution(const Tensor& logits, int64_t row, const Params& params) {
  std::vector<Likely> all;
  double best = -INFINITY;
  for (int64_t i = 0; i < logits.cols(); ++i) best = std::max(best, at(logits, row, i));
  for (int64_t i = 0; i < logits.cols(); ++i) {
    const double p =
        std::exp((at(logits, row, i) - best) / static_cast<double>(params.temperature));
    all.push_back({p, static_cast<int32_t>(i)});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Likely& a, const Likely& b) { return a.p > b.p; });
  const double least = static_cast<double>(params.min_p) * all[0].p;
  std::erase_if(all, [&](const Likely& e) { return e.p == 0 || e.p < least; });
  if (params.top_k > 0 && std::ssize(all) > params.top_k)
    all.resize(static_cast<size_t>(params.top_k));
  renormalise(all);
  if (params.top_p >= 1) return all;
  std::vector<Likely> out;
  double mass = 0;
  for (const Likely& e : all) {
    if (mass >= static_cast<double>(params.top_p)) break;
    out.push_back(e);
    mass += e.p;
  }
  renormalise(out);
  return out;
}

}  // namespace skiff::suite

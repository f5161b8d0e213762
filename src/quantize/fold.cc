#include "quantize/fold.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "quantize/parallel.h"
#include "quantize/round_input.h"

namespace skiff::quantize {
namespace {

using Factors = std::vector<float>;

constexpr float kLeast = 1e-4f;  // factors below are no improvement, and their inverses overflow

int64_t width(const FoldProblem& problem) { return problem.consumers.at(0).weight->cols; }

// Statistics of each input channel over all consumers.
struct Channels {
  Factors x_mean, x_max, w_mean, w_max;
};

void add_inputs(const FoldConsumer& consumer, Channels& out, double& tokens,
                std::vector<double>& sums) {
  const Matrix& x = consumer.inputs;
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t c = 0; c < x.cols; ++c) {
      const float size = std::abs(x.row(t)[c]);
      sums[static_cast<size_t>(c)] += size;
      out.x_max[static_cast<size_t>(c)] = std::max(out.x_max[static_cast<size_t>(c)], size);
    }
  tokens += static_cast<double>(x.rows);
}

// Adds |w| as a fraction of the largest in its block.
void add_weights(const FoldConsumer& consumer, Channels& out, double& rows,
                 std::vector<double>& sums) {
  const Matrix& w = *consumer.weight;
  const int64_t wide = consumer.format.block_in ? consumer.format.block_in : w.cols;
  for (int64_t r = 0; r < w.rows; ++r)
    for (int64_t first = 0; first < w.cols; first += wide) {
      const int64_t end = std::min(first + wide, w.cols);
      float largest = 0;
      for (int64_t c = first; c < end; ++c) largest = std::max(largest, std::abs(w.row(r)[c]));
      for (int64_t c = first; c < end; ++c) {
        const float size = std::abs(w.row(r)[c]);
        sums[static_cast<size_t>(c)] += size / (largest + 1e-6f);
        out.w_max[static_cast<size_t>(c)] = std::max(out.w_max[static_cast<size_t>(c)], size);
      }
    }
  rows += static_cast<double>(w.rows);
}

Channels statistics(const FoldProblem& problem) {
  const auto n = static_cast<size_t>(width(problem));
  Channels out{Factors(n), Factors(n), Factors(n), Factors(n)};
  std::vector<double> x(n), w(n);
  double tokens = 0, rows = 0;
  for (const FoldConsumer& consumer : problem.consumers) {
    add_inputs(consumer, out, tokens, x);
    add_weights(consumer, out, rows, w);
  }
  for (size_t c = 0; c < n; ++c) {
    out.x_mean[c] = static_cast<float>(x[c] / std::max(1.0, tokens));
    out.w_mean[c] = static_cast<float>(w[c] / std::max(1.0, rows));
  }
  return out;
}

void to_powers(Factors& factors) {
  for (float& f : factors) f = std::exp2(std::nearbyint(std::log2(f)));
}

// Channels of one class get the geometric mean of their factors.
void tie_classes(const FoldProblem& problem, Factors& factors) {
  const int32_t classes = *std::ranges::max_element(problem.classes) + 1;
  std::vector<double> logs(static_cast<size_t>(classes)), counts(logs);
  for (size_t c = 0; c < factors.size(); ++c) {
    logs[static_cast<size_t>(problem.classes[c])] += std::log(static_cast<double>(factors[c]));
    counts[static_cast<size_t>(problem.classes[c])] += 1;
  }
  for (size_t c = 0; c < factors.size(); ++c) {
    const auto i = static_cast<size_t>(problem.classes[c]);
    factors[c] = static_cast<float>(std::exp(logs[i] / counts[i]));
  }
}

void tie(const FoldProblem& problem, Factors& factors) {
  if (!problem.classes.empty()) tie_classes(problem, factors);
  if (problem.powers) to_powers(factors);
}

// Makes the largest and the smallest factor each other's inverse, so that neither weights nor what
// produces the inputs grow out of their range.
void centre(Factors& factors) {
  for (float& f : factors) f = std::isfinite(f) ? std::max(f, kLeast) : 1;
  const auto [low, high] = std::ranges::minmax_element(factors);
  const float middle = std::sqrt(*low) * std::sqrt(*high);
  for (float& f : factors) f /= middle;
}

// Tries factors and keeps the best.
class Search {
 public:
  Search(const FoldProblem& problem, Ops& ops, int threads)
      : problem_(problem), ops_(ops), threads_(threads) {
    choice_.factors.assign(static_cast<size_t>(width(problem)), 1);
    choice_.error = choice_.without = error(choice_.factors);
  }
  // True where these factors are better than, or with `ties` as good as, the best so far.
  bool offer(Factors factors, bool ties = false) {
    tie(problem_, factors);
    const double found = error(factors);
    if (!(found < choice_.error || (ties && found == choice_.error))) return false;
    choice_.error = found;
    choice_.factors = std::move(factors);
    return true;
  }
  const Factors& best() const { return choice_.factors; }
  FoldChoice take() { return std::move(choice_); }

 private:
  double error(const Factors& factors) {
    double total = 0;
    for (const FoldConsumer& consumer : problem_.consumers) total += error(consumer, factors);
    return total;
  }
  double error(const FoldConsumer& consumer, const Factors& factors) {
    Matrix w = *consumer.weight, x = consumer.inputs;
    parallel_for(threads_, w.rows, [&](int64_t r) {
      for (int64_t c = 0; c < w.cols; ++c) w.row(r)[c] *= factors[static_cast<size_t>(c)];
    });
    parallel_for(threads_, x.rows, [&](int64_t t) {
      for (int64_t c = 0; c < x.cols; ++c) x.row(t)[c] /= factors[static_cast<size_t>(c)];
    });
    const WeightFormat& format = consumer.format;
    Matrix q = values_of(round_with(w, format, covering_steps(w, format), threads_));
    if (!problem_.input) {  // x w^T - x q^T
      for (size_t i = 0; i < q.values.size(); ++i) q.values[i] -= w.values[i];
      return squares(product(x, q, ops_));
    }
    const Matrix exact = product(x, w, ops_);
    round_input(x.values.data(), x.rows, x.cols, {*problem_.input});
    Matrix rounded = product(x, q, ops_);
    for (size_t i = 0; i < exact.values.size(); ++i) rounded.values[i] -= exact.values[i];
    return squares(rounded);
  }
  static double squares(const Matrix& m) {
    double sum = 0;
    for (const float v : m.values) sum += static_cast<double>(v) * static_cast<double>(v);
    return sum;
  }

  const FoldProblem& problem_;
  Ops& ops_;
  const int threads_;
  FoldChoice choice_;
};

// The cluster of each value: Lloyd's algorithm on numbers, begun at quantiles, so that it is the
// same each time. Clusters are numbered by rising size.
std::vector<size_t> clusters(const Factors& values, size_t count) {
  Factors sorted = values;
  std::ranges::sort(sorted);
  std::vector<double> centres;
  for (size_t k = 0; k < count; ++k)
    centres.push_back(sorted[(2 * k + 1) * sorted.size() / (2 * count)]);
  std::vector<size_t> cluster(values.size());
  for (int round = 0; round < 50; ++round) {
    std::vector<double> sums(count), sizes(count);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto nearest = std::ranges::min_element(
          centres, {}, [&](double c) { return std::abs(c - static_cast<double>(values[i])); });
      cluster[i] = static_cast<size_t>(nearest - centres.begin());
      sums[cluster[i]] += static_cast<double>(values[i]);
      sizes[cluster[i]] += 1;
    }
    for (size_t k = 0; k < count; ++k)
      if (sizes[k] > 0) centres[k] = sums[k] / sizes[k];
  }
  return cluster;
}

float smooth_factor(float x, float w, float a) {
  return std::max(1e-5f, std::pow(x, a)) / std::max(1e-5f, std::pow(w, 1 - a));
}

}  // namespace

FoldChoice awq_factors(const FoldProblem& problem, Ops& ops, int threads) {
  Search search(problem, ops, threads);
  const Channels channels = statistics(problem);
  for (const bool by_weights : {false, true})
    for (int i = by_weights ? 0 : 1; i <= 20; ++i) {
      const float ratio = static_cast<float>(i) / 20;
      Factors factors(channels.x_mean.size());
      for (size_t c = 0; c < factors.size(); ++c) {
        factors[c] = std::pow(channels.x_mean[c], ratio);
        if (by_weights) factors[c] /= std::pow(channels.w_mean[c], 1 - ratio) + 1e-4f;
      }
      centre(factors);
      search.offer(std::move(factors));
    }
  return search.take();
}

FoldChoice smooth_factors(const FoldProblem& problem, Ops& ops, int threads) {
  Search search(problem, ops, threads);
  const Channels channels = statistics(problem);
  for (const size_t pieces : {1, 2, 3}) {
    if (channels.x_max.size() < pieces) break;
    const std::vector<size_t> piece = clusters(channels.x_max, pieces);
    for (size_t k = 0; k < pieces; ++k) {
      const auto offer = [&](auto factor_of) {
        Factors factors = search.best();
        for (size_t c = 0; c < factors.size(); ++c)
          if (piece[c] == k) factors[c] = std::max(kLeast, factor_of(c));
        search.offer(std::move(factors), /*ties=*/true);
      };
      for (int a = 0; a <= 12; ++a)
        offer([&](size_t c) {
          return smooth_factor(channels.x_max[c], channels.w_max[c],
                               0.2f + 0.05f * static_cast<float>(a));
        });
      if (pieces == 1) continue;  // a constant for all channels changes nothing
      for (int i = 0; i <= 8; ++i) offer([&](size_t) { return 1 + 0.5f * static_cast<float>(i); });
    }
  }
  return search.take();
}

Matrix sample_rows(const Matrix& x, int64_t most) {
  if (x.rows <= most) return x;
  Matrix out(0, x.cols);
  for (int64_t i = 0; i < most; ++i) out.append_rows(x.row(i * x.rows / most), 1);
  return out;
}

}  // namespace skiff::quantize

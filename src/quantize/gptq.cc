#include "quantize/gptq.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "quantize/cholesky.h"
#include "quantize/parallel.h"

namespace skiff::quantize {
namespace {

std::vector<int32_t> column_order(const Square& moments, bool by_size) {
  std::vector<int32_t> order(static_cast<size_t>(moments.size));
  std::iota(order.begin(), order.end(), 0);
  if (by_size)
    std::ranges::sort(order, [&](int32_t a, int32_t b) {
      const double first = moments.row(a)[a], second = moments.row(b)[b];
      return first != second ? first > second : a < b;
    });
  return order;
}

// Inputs that were always zero get a moment of 1, so that the factor exists.
Square permuted(const Square& m, const std::vector<int32_t>& order) {
  Square out(m.size);
  for (int64_t r = 0; r < m.size; ++r)
    for (int64_t c = 0; c < m.size; ++c)
      out.row(r)[c] = m.row(order[static_cast<size_t>(r)])[order[static_cast<size_t>(c)]];
  for (int64_t r = 0; r < m.size; ++r)
    if (out.row(r)[r] == 0) out.row(r)[r] = 1;
  return out;
}

double mean_diagonal(const Square& m) {
  double sum = 0;
  for (int64_t i = 0; i < m.size; ++i) sum += m.row(i)[i];
  return m.size ? sum / static_cast<double>(m.size) : 0;
}

constexpr int64_t kBand = 16;  // rows that walk along the factor together

// One band of rows.
class Walk {
 public:
  Walk(const Matrix& w, const std::vector<float>& factor, const std::vector<int32_t>& order,
       Rounded& rounded)
      : w_(w), factor_(factor), order_(order), rounded_(rounded), n_(w.cols) {}

  void rows(int64_t first, int64_t count) {
    Matrix left(count, n_);
    for (int64_t r = 0; r < count; ++r)
      for (int64_t i = 0; i < n_; ++i)
        left.row(r)[i] = w_.row(first + r)[order_[static_cast<size_t>(i)]];
    for (int64_t i = 0; i < n_; ++i) {
      const float* line = factor_.data() + i * n_;
      const int64_t column = order_[static_cast<size_t>(i)];
      for (int64_t r = 0; r < count; ++r) {
        float* x = left.row(r);
        const Step& step = rounded_.step_at(first + r, column);
        const uint8_t code = code_of(rounded_.format, step, x[i]);
        rounded_.codes[static_cast<size_t>((first + r) * n_ + column)] = code;
        const float error = (x[i] - value_of(rounded_.format, step, code)) / line[i];
        for (int64_t j = i + 1; j < n_; ++j) x[j] -= error * line[j];
      }
    }
  }

 private:
  const Matrix& w_;
  const std::vector<float>& factor_;
  const std::vector<int32_t>& order_;
  Rounded& rounded_;
  const int64_t n_;
};

// The error of one output, kept up to date while single elements move.
class RowError {
 public:
  RowError(const float* w, const Rounded& rounded, int64_t row, const Square& moments)
      : moments_(moments), difference_(static_cast<size_t>(moments.size)), gradient_(difference_) {
    for (int64_t c = 0; c < moments.size; ++c)
      difference_[at(c)] =
          static_cast<double>(w[c]) - value_of(rounded.format, rounded.step_at(row, c),
                                               rounded.codes[at(row * moments.size + c)]);
    for (int64_t c = 0; c < moments.size; ++c) {
      if (difference_[at(c)] == 0) continue;
      const double* m = moments.row(c);
      for (int64_t j = 0; j < moments.size; ++j) gradient_[at(j)] += m[j] * difference_[at(c)];
    }
  }
  double total() const {
    double sum = 0;
    for (size_t i = 0; i < difference_.size(); ++i) sum += difference_[i] * gradient_[i];
    return sum;
  }
  // The value near which element c makes the error least, all others as they are.
  double best(int64_t c, double value) const {
    const double own = moments_.row(c)[c];
    return own > 0 ? value + gradient_[at(c)] / own : value;
  }
  void move(int64_t c, double by) {  // the rounded value grows by `by`
    difference_[at(c)] -= by;
    const double* m = moments_.row(c);
    for (int64_t j = 0; j < moments_.size; ++j) gradient_[at(j)] -= m[j] * by;
  }

 private:
  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  const Square& moments_;
  std::vector<double> difference_, gradient_;
};

// Moves elements, one at a time, to where they make the row's error least. The error never grows.
void refine(const Matrix& w, int64_t row, const Square& moments, int passes, Rounded& rounded) {
  RowError error(w.row(row), rounded, row, moments);
  for (int pass = 0; pass < passes; ++pass) {
    bool moved = false;
    for (int64_t c = 0; c < w.cols; ++c) {
      const Step& step = rounded.step_at(row, c);
      uint8_t& code = rounded.codes[static_cast<size_t>(row * w.cols + c)];
      const double value = value_of(rounded.format, step, code);
      const uint8_t better =
          code_of(rounded.format, step, static_cast<float>(error.best(c, value)));
      if (better == code) continue;
      const double next = value_of(rounded.format, step, better);
      const double target = error.best(c, value);
      if (std::abs(next - target) >= std::abs(value - target)) continue;
      error.move(c, next - value);
      code = better;
      moved = true;
    }
    if (!moved) break;
  }
}

void copy_row(Rounded& to, const Rounded& from, int64_t row) {
  std::copy_n(from.codes.begin() + row * from.in, from.in, to.codes.begin() + row * to.in);
}

// The search of one block of columns, for any row.
class BlockSearch {
 public:
  BlockSearch(const WeightFormat& format, const Square& moments, int64_t col, int64_t cols)
      : format_(format), cols_(cols), moments_(static_cast<size_t>(cols * cols)) {
    for (int64_t i = 0; i < cols; ++i)
      for (int64_t j = 0; j < cols; ++j)
        moments_[static_cast<size_t>(i * cols + j)] =
            static_cast<float>(moments.row(col + i)[col + j]);
  }

  // Errors fall and rise once as ranges are clipped, but for noise; so the search ends when many
  // clippings in a row were no better.
  Step best(const float* x) const {
    constexpr int kPatience = 6;
    const auto [low, high] = std::minmax_element(x, x + cols_);
    Step best;
    double least = -1;
    for (int i = 0, at = 0; i < kClipTries && i - at <= kPatience; ++i) {
      const Step step = step_for(format_, *low * clip_at(i), *high * clip_at(i));
      const double found = error(x, step);
      if (least >= 0 && found >= least) continue;
      least = found;
      best = step;
      at = i;
    }
    return best;
  }

 private:
  double error(const float* x, const Step& step) const {
    std::vector<float> d(static_cast<size_t>(cols_)), product(d);
    for (size_t c = 0; c < d.size(); ++c) d[c] = x[c] - rounded_value(format_, step, x[c]);
    for (size_t i = 0; i < d.size(); ++i) {
      const float* m = moments_.data() + i * d.size();
      for (size_t j = 0; j < d.size(); ++j) product[j] += m[j] * d[i];
    }
    double sum = 0;
    for (size_t i = 0; i < d.size(); ++i)
      sum += static_cast<double>(product[i]) * static_cast<double>(d[i]);
    return sum;
  }

  const WeightFormat& format_;
  const int64_t cols_;
  std::vector<float> moments_;
};

}  // namespace

GptqResult gptq(const Matrix& w, const WeightFormat& format, const std::vector<Step>& steps,
                const Square& moments, const GptqOptions& options, int threads) {
  SKIFF_CHECK_EQ(w.cols, moments.size);
  SKIFF_CHECK_EQ(format.block_out, 1);
  const Rounded nearest = round_with(w, format, steps, threads);
  GptqResult result{.rounded = nearest};
  const std::vector<int32_t> order = column_order(moments, options.act_order);
  std::vector<float> factor;
  {
    const Square ordered = permuted(moments, order);
    const double mean = mean_diagonal(ordered);
    std::optional<Square> upper;
    for (double part = options.damping; !upper && part <= 1; part *= 10) {
      result.damping = part;
      upper = inverse_factor(ordered, part * mean, threads);
    }
    result.factored = upper.has_value();
    if (!upper) return result;
    factor.assign(upper->values.begin(), upper->values.end());
  }
  parallel_for(threads, (w.rows + kBand - 1) / kBand, [&](int64_t band) {
    Walk(w, factor, order, result.rounded)
        .rows(band * kBand, std::min(kBand, w.rows - band * kBand));
  });
  std::vector<uint8_t> kept(static_cast<size_t>(w.rows));
  parallel_for(threads, w.rows, [&](int64_t r) {
    refine(w, r, moments, options.refinements, result.rounded);
    const double mine = RowError(w.row(r), result.rounded, r, moments).total();
    if (mine <= RowError(w.row(r), nearest, r, moments).total()) return;
    copy_row(result.rounded, nearest, r);
    kept[static_cast<size_t>(r)] = 1;
  });
  result.rows_nearest = std::accumulate(kept.begin(), kept.end(), int64_t{0});
  return result;
}

std::vector<Step> calibrated_steps(const Matrix& w, const WeightFormat& format,
                                   const Square& moments, int threads) {
  SKIFF_CHECK_EQ(format.block_out, 1);
  const int64_t wide = format.block_in ? format.block_in : w.cols;
  const int64_t across = num_blocks(w.cols, format.block_in);
  std::vector<Step> steps(static_cast<size_t>(w.rows * across));
  for (int64_t b = 0; b < across; ++b) {
    const BlockSearch search(format, moments, b * wide, std::min(wide, w.cols - b * wide));
    parallel_for(threads, w.rows, [&](int64_t r) {
      steps[static_cast<size_t>(r * across + b)] = search.best(w.row(r) + b * wide);
    });
  }
  return steps;
}

}  // namespace skiff::quantize

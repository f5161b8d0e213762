#include "quantize/grid.h"

#include <algorithm>
#include <cmath>

#include "base/load_error.h"
#include "quantize/parallel.h"
#include "weights/codes.h"
#include "weights/quant_rule.h"

namespace skiff::quantize {
namespace {

float steps_of_range(DType element) {
  switch (element) {
    case DType::kI4:
      return 7.5f;
    case DType::kI8:
      return 127;
    case DType::kF8E4M3:
      return 448;
    default:
      SKIFF_CHECK(false, "elements of {}", name(element));
  }
}

struct Range {
  float low = 0, high = 0;
};

Range range_of(const Matrix& w, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  Range range;
  for (int64_t r = row; r < row + rows; ++r)
    for (const float x : w.row_span(r).subspan(static_cast<size_t>(col), static_cast<size_t>(cols)))
      range = {std::min(range.low, x), std::max(range.high, x)};
  return range;
}

}  // namespace

Step step_for(const WeightFormat& format, float low, float high) {
  low = std::min(low, 0.0f);
  high = std::max(high, 0.0f);
  SKIFF_CHECK(format.scale.has_value(), "{} has no scale", describe(format));
  const float exact =
      format.zero ? (high - low) / 15 : std::max(-low, high) / steps_of_range(format.dtype);
  const float scale = rounded_scale(exact, *format.scale);
  if (scale == 0) return {};
  if (!std::isfinite(scale))
    fail_load("a weight of magnitude {} has no scale in {}; the checkpoint is damaged",
              std::max(-low, high), name(*format.scale));
  if (!format.zero) return {.scale = scale};
  return {.scale = scale, .zero = std::clamp(std::nearbyint(-low / scale), 0.0f, 15.0f)};
}

uint8_t code_of(const WeightFormat& format, const Step& step, float x) {
  const float quotient = x / step.scale;
  switch (format.dtype) {
    case DType::kI4:
      return static_cast<uint8_t>(
          static_cast<int8_t>(std::clamp(std::nearbyint(quotient), -8.0f, 7.0f)));
    case DType::kI8:
      return static_cast<uint8_t>(
          static_cast<int8_t>(std::clamp(std::nearbyint(quotient), -127.0f, 127.0f)));
    case DType::kU4:
      return static_cast<uint8_t>(std::clamp(std::nearbyint(quotient) + step.zero, 0.0f, 15.0f));
    default:
      return to_e4m3(quotient);
  }
}

float value_of(const WeightFormat& format, const Step& step, uint8_t code) {
  const double element = format.dtype == DType::kU4       ? static_cast<double>(code)
                         : format.dtype == DType::kF8E4M3 ? from_e4m3(code)
                                                          : static_cast<int8_t>(code);
  return static_cast<float>(static_cast<double>(step.scale) *
                            (element - static_cast<double>(step.zero)));
}

Rounded empty_rounded(const WeightFormat& format, int64_t out, int64_t in) {
  Rounded made{.format = format, .out = out, .in = in, .codes = {}, .steps = {}};
  made.codes.resize(static_cast<size_t>(out * in));
  made.steps.resize(
      static_cast<size_t>(num_blocks(out, format.block_out) * num_blocks(in, format.block_in)));
  return made;
}

Matrix values_of(const Rounded& rounded) {
  Matrix w(rounded.out, rounded.in);
  for (int64_t r = 0; r < w.rows; ++r)
    for (int64_t c = 0; c < w.cols; ++c)
      w.row(r)[c] = value_of(rounded.format, rounded.step_at(r, c),
                             rounded.codes[static_cast<size_t>(r * w.cols + c)]);
  return w;
}

std::vector<Step> covering_steps(const Matrix& w, const WeightFormat& format, float clip) {
  const int64_t tall = format.block_out ? format.block_out : w.rows;
  const int64_t wide = format.block_in ? format.block_in : w.cols;
  std::vector<Step> steps;
  for (int64_t r = 0; r < w.rows; r += tall)
    for (int64_t c = 0; c < w.cols; c += wide) {
      const Range range = range_of(w, r, std::min(tall, w.rows - r), c, std::min(wide, w.cols - c));
      steps.push_back(step_for(format, range.low * clip, range.high * clip));
    }
  return steps;
}

Rounded round_with(const Matrix& w, const WeightFormat& format, std::vector<Step> steps,
                   int threads) {
  Rounded made = empty_rounded(format, w.rows, w.cols);
  SKIFF_CHECK_EQ(made.steps.size(), steps.size());
  made.steps = std::move(steps);
  parallel_for(threads, w.rows, [&](int64_t r) {
    for (int64_t c = 0; c < w.cols; ++c)
      made.codes[static_cast<size_t>(r * w.cols + c)] =
          code_of(format, made.step_at(r, c), w.row(r)[c]);
  });
  return made;
}

std::vector<Step> clipped_steps(const Matrix& w, const WeightFormat& format, int threads) {
  SKIFF_CHECK_EQ(format.block_out, 1);
  const int64_t wide = format.block_in ? format.block_in : w.cols;
  const int64_t across = num_blocks(w.cols, format.block_in);
  std::vector<Step> steps(static_cast<size_t>(w.rows * across));
  parallel_for(threads, w.rows, [&](int64_t r) {
    for (int64_t b = 0; b < across; ++b) {
      const int64_t col = b * wide, cols = std::min(wide, w.cols - col);
      const Range range = range_of(w, r, 1, col, cols);
      double best = -1;
      for (int i = 0; i < kClipTries; ++i) {
        const Step step = step_for(format, range.low * clip_at(i), range.high * clip_at(i));
        double error = 0;
        for (int64_t c = col; c < col + cols; ++c) {
          const double e = w.row(r)[c] - rounded_value(format, step, w.row(r)[c]);
          error += e * e;
        }
        if (best >= 0 && error >= best) continue;
        best = error;
        steps[static_cast<size_t>(r * across + b)] = step;
      }
    }
  });
  return steps;
}

}  // namespace skiff::quantize

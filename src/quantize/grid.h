// quantize/grid.h -- the values that a weight may take once it is stored in a WeightFormat, and
// weights rounded to them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "quantize/matrix.h"
#include "weights/format.h"

namespace skiff::quantize {

// A block's scale, already rounded to the format's dtype, and its zero point (0 without one).
struct Step {
  float scale = 1, zero = 0;
};

// The formats that functions here take: kI4 and kI8 without zero points, kU4 with kU8 zero points,
// kF8E4M3; scales of 16 or 32 bits.
//
// Returns the step with which [low, high] is covered; the range is widened to hold zero. Symmetric
// integers: max / 7.5 or max / 127. With zero points: (high - low) / 15. Floats: max / 448. A step
// that would be zero is 1.
Step step_for(const WeightFormat& format, float low, float high);
// The element nearest to x (ties to even), as a byte: int8, uint8 or an e4m3 code.
uint8_t code_of(const WeightFormat& format, const Step& step, float x);
// The value that readers of the format give an element: scale * (element - zero), rounded once.
float value_of(const WeightFormat& format, const Step& step, uint8_t code);
inline float rounded_value(const WeightFormat& format, const Step& step, float x) {
  return value_of(format, step, code_of(format, step, x));
}

// A weight [out, in] as elements, scales and zero points.
struct Rounded {
  WeightFormat format;
  int64_t out = 0, in = 0;
  std::vector<uint8_t> codes;  // [out * in]
  std::vector<Step> steps;     // [blocks of out * blocks of in]

  int64_t blocks_across() const { return num_blocks(in, format.block_in); }
  const Step& step_at(int64_t r, int64_t c) const { return steps[block_index(r, c)]; }
  size_t block_index(int64_t r, int64_t c) const {
    const int64_t down = format.block_out ? r / format.block_out : 0;
    const int64_t across = format.block_in ? c / format.block_in : 0;
    return static_cast<size_t>(down * blocks_across() + across);
  }
};

Rounded empty_rounded(const WeightFormat& format, int64_t out, int64_t in);
Matrix values_of(const Rounded& rounded);

// The steps that cover the extremes of each block of w times `clip`.
std::vector<Step> covering_steps(const Matrix& w, const WeightFormat& format, float clip = 1);
// Rounds every element of w to the nearest value of its block's step.
Rounded round_with(const Matrix& w, const WeightFormat& format, std::vector<Step> steps,
                   int threads);

// The fractions of a block's range that searches for the best clipping try, falling from 1.
constexpr int kClipTries = 26;
constexpr float clip_at(int i) { return 1 - 0.02f * static_cast<float>(i); }
// Steps of single rows (block_out 1) with the least squared error of the weights in their block.
std::vector<Step> clipped_steps(const Matrix& w, const WeightFormat& format, int threads);

}  // namespace skiff::quantize

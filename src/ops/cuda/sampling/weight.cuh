// ops/cuda/sampling/weight.cuh -- weights (unnormalized probabilities) of tokens in fixed point, so
// that sums do not depend on the order of additions. A weight is 2^-far, far = (best - logit) *
// log2(e) / temperature. `far` also selects the token's bin; bins of one power of two have the same
// step.
#pragma once
#include "ops/cuda/math.cuh"
#include "ops/cuda/sampling/block.cuh"

namespace skiff::cuda {

constexpr int kReach = 45;         // powers of two; tokens further away weigh less than a unit
constexpr int kBinsPerPower = 32;  // so that a bin seldom has more tokens than a list
constexpr int kBins = kReach * kBinsPerPower;
constexpr int kFull = 20;  // powers of two within which a weight keeps its 24 bits

// A weight is a number of steps of 2^step_of(bin) units; the best token weighs 2^44 units.
__device__ __forceinline__ int power_of(int bin) {
  return static_cast<int>(static_cast<unsigned>(bin) / kBinsPerPower);
}
__device__ __forceinline__ int step_of(int bin) { return max(kFull - power_of(bin), 0); }

struct Weight {
  int bin;
  uint32_t steps;  // at most 2^24
  __device__ uint64_t units() const { return uint64_t{steps} << step_of(bin); }
};

// The distance below the greatest logit within which min_p keeps tokens, and the least kept logit.
__device__ inline double kept_span(float temperature, float min_p) {
  if (!(min_p > 0)) return -static_cast<double>(kNever);
  return fmax(-log(static_cast<double>(min_p)), 0.0) * static_cast<double>(temperature);
}
__device__ inline float least_kept(float best, double span) {
  return __double2float_ru(static_cast<double>(best) - span);
}

struct Scale {
  float best;
  float high, low;  // log2(e) / temperature in two parts
  float least;      // min_p drops logits below it

  __device__ Scale(float best_logit, float temperature, float min_p) : best(best_logit) {
    const double factor = fmin(1.4426950408889634074 / static_cast<double>(temperature), 1e30);
    high = static_cast<float>(factor);
    low = static_cast<float>(factor - static_cast<double>(high));
    least = least_kept(best_logit, kept_span(temperature, min_p));
  }
  // NaN and tokens that are impossible are out of reach.
  __device__ bool reaches(float v) const { return (best - v) * high < kReach; }
  __device__ bool drops() const { return least > kNever; }
  __device__ bool keeps(float v) const { return v >= least; }
  __device__ int bin(float v) const {  // only where reaches(v)
    return __float_as_int(__fmaf_rd((best - v) * high, kBinsPerPower, kWhole)) - kWholeBits;
  }
  __device__ Weight weight(float v) const {
    const float d = best - v, power = __fadd_rd(d * high, kWhole) - kWhole;
    const float rest = fmaf(d, low, fmaf(d, high, -power));  // the product is not rounded
    const float w = exp2_fast(-rest);                        // (1/2, 1]
    const int b = bin(v);
    const uint32_t bits = __float_as_uint(w) - kHalfBits;
    return {b, bits >> max(power_of(b) - kFull, 0)};
  }

 private:
  // Adding it to a small number leaves the number's whole part in the last bits.
  static constexpr float kWhole = 8388608.0f;
  static constexpr int kWholeBits = 0x4b000000;
  static constexpr uint32_t kHalfBits = 0x3f000000u - 0x800000u;  // 1/2 is 2^23 steps
};

// Weights as floats, in four instructions. The best token weighs 1, impossible tokens 0; NaN stays
// NaN.
struct Power {
  float best, high, low;
  __device__ __forceinline__ float weight(float v) const {
    const float d = v - best;
    return exp2_fast(fmaf(d, high, d * low));
  }
};
// The sum of a thread is rounded to whole units, so that further additions commute exactly.
constexpr float kUnits = 0x1p40f;  // the weight of the best token
__device__ __forceinline__ uint64_t units_of(float mass) { return __float2ull_rz(mass * kUnits); }
__device__ __forceinline__ double weight_of(uint64_t units) {
  return static_cast<double>(units) / static_cast<double>(kUnits);
}

// A fast filter for the bins [first, last]: it rejects nearly all logits outside and none inside.
// Its margin is far larger than the rounding errors of bin().
struct Band {
  float middle = 0, half = -1;  // nothing

  Band() = default;
  __device__ Band(const Scale& scale, int first, int last) {
    const float bin = 1 / (kBinsPerPower * scale.high);
    const float near = static_cast<float>(first) * bin, far = static_cast<float>(last + 1) * bin;
    middle = scale.best - (near + far) / 2;
    half = (far - near) / 2 + 1e-6f * (fabsf(scale.best) + fabsf(middle) + far);
    if (isfinite(half)) return;
    middle = 0;
    half = -kNever;
  }
  __device__ __forceinline__ bool may_hold(float v) const { return fabsf(v - middle) <= half; }
};

}  // namespace skiff::cuda

// bench/ops/cuda/product_check.cuh -- a product on the device against the formula in double, with
// the op suite's bounds.
#pragma once
#include "harness.cuh"
#include "weights/linear.h"

namespace skiff::cuda::bench {

struct Point {
  const void *x, *w, *out;
  const float* bias;
  int64_t x_stride, out_stride;
  int rows, in, out_features, points;
  bool f32, out_f32, gated;
  double* worst;  // the largest |error| / bound
};

static __device__ double dot(const Point& p, int r, int o, double* size) {
  double sum = 0;
  *size = 0;
  for (int i = threadIdx.x; i < p.in; i += 32) {
    const double v =
        value(p.x, p.f32, r * p.x_stride + i) * value(p.w, p.f32, int64_t{o} * p.in + i);
    sum += v;
    *size += fabs(v);
  }
  for (int m = 16; m; m /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, m);
    *size += __shfl_xor_sync(0xffffffffu, *size, m);
  }
  return sum;
}

// One warp a point; the op suite's bounds.
static __global__ void check_kernel(Point p) {
  for (int64_t i = blockIdx.x; i < p.points; i += gridDim.x) {
    const int64_t all = int64_t{p.rows} * p.out_features,
                  at = p.points == all ? i : i * 2654435761 % all;
    const int r = at / p.out_features, o = at % p.out_features;
    double size, want = dot(p, r, o, &size), bound = (p.in + 2) * 0x1p-24 * size;
    if (p.gated) {
      double up_size;
      const double up = dot(p, r, p.out_features + o, &up_size), act = want / (1 + exp(-want));
      bound = (p.in + 2) * 0x1p-24 * (1.2 * size * fabs(up) + fabs(act) * up_size) +
              16 * 0x1p-24 * fabs(want * up);
      want = act * up;
    } else if (p.bias) {
      want += p.bias[o];
      bound += (p.in + 2) * 0x1p-24 * fabs(static_cast<double>(p.bias[o]));
    }
    bound += (p.out_f32 ? 0x1p-24 : 0x1p-8) * (fabs(want) + bound);
    const double got = value(p.out, p.out_f32, r * p.out_stride + o);
    double e = fabs(got - want) / bound;
    if (!(e >= 0)) e = 1e30;
    if (threadIdx.x == 0 && e > 0)
      atomicMax(reinterpret_cast<unsigned long long*>(p.worst), __double_as_longlong(e));
  }
}

// The worst error of up to `points` outputs, as a fraction of the bound.
inline double worst_of(const Tensor& out, const Tensor& x, const Linear& w, bool gated,
                       int64_t points = 1 << 16) {
  static double* worst = nullptr;
  if (!worst) check(cudaMalloc(&worst, 8), "allocating");
  check(cudaMemset(worst, 0, 8), "clearing");
  Point p = {x.data,
             w.weight.data,
             out.data,
             w.bias ? w.bias.as<float>() : nullptr,
             x.row_stride,
             out.row_stride,
             static_cast<int>(out.rows()),
             static_cast<int>(x.cols()),
             static_cast<int>(out.cols()),
             static_cast<int>(std::min<int64_t>(out.elements(), points)),
             x.dtype == DType::kF32,
             out.dtype == DType::kF32,
             gated,
             worst};
  if (p.points > 0) check_kernel<<<2048, 32>>>(p);
  return host<double>(worst, 1)[0];
}

}  // namespace skiff::cuda::bench

// Times products with quantized weights on the cpu backend against the limits of the machine, after
// checking each result against the reference backend.
//   bench_quantized [threads [scheme]]
// A single thread is timed in its own processor time, so that other jobs disturb it less.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

#include "base/processors.h"
#include "machine_limits.h"
#include "model/schemes.h"
#include "ops/cpu/cpu_features.h"
#include "ops/cpu/cpu_ops.h"
#include "tensor/convert.h"
#include "tensor/memory.h"

namespace skiff::bench {
namespace {

// Weights that no cache holds; the inputs of a model of a billion parameters.
constexpr int64_t kOut = 65'536, kIn = 2'048, kChecked = 128;

Tensor make(Buffer& owner, DType dtype, std::initializer_list<int64_t> shape) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  owner = Buffer(Device{}, byte_size(dtype, n));
  return owner.view(dtype, shape);
}

// Numbers of a fixed sequence within [-scale, scale).
void fill(const Tensor& t, float scale) {
  uint32_t state = 12345;
  for (int64_t i = 0; i < t.elements(); ++i) {
    state = state * 1664525u + 1013904223u;
    const float x = static_cast<float>(state >> 8) * 0x1p-23f - 1;
    t.as<BF16>()[i] = to_bf16(x * scale);
  }
}

// The first rows of a matrix.
Tensor top(Tensor t, int64_t rows) {
  t.dim[0] = std::min(rows, t.dim[0]);
  return t;
}

class Bench {
 public:
  explicit Bench(int threads)
      : threads_(threads),
        limits_(measure_limits(threads)),
        ops_(make_cpu_ops(threads)),
        judge_(make_reference_ops()),
        plain_(make(plain_owner_, DType::kBF16, {kOut, kIn})) {
    fmt::print("{} threads, {}: read {:.1f} GB/s, bf16 {:.2f} TFLOP/s, int8 {:.2f} TOP/s\n",
               threads_, cpu::kernels_for(cpu::best_isa()).name, limits_.read_bytes / 1e9,
               limits_.bf16_flops / 1e12, limits_.int8_ops / 1e12);
    fill(plain_, 0.05f);
  }

  void bf16() {
    Buffer owner;
    const Linear plain = {.weight = plain_, .format = {DType::kBF16}};
    rows("bf16", plain, ops_->prepare(plain, {DType::kBF16}, &owner));
  }

  void scheme(const model::Scheme& scheme) {
    const WeightFormat format = *scheme.format_for(kIn);
    Buffer codes, scales, owner;
    Linear plain = {.weight = make(codes, format.dtype, {kOut, kIn}), .format = format};
    plain.scale = make(scales, *format.scale,
                       {num_blocks(kOut, format.block_out), num_blocks(kIn, format.block_in)});
    ops_->quantize(plain, plain_, scheme.rule);
    rows(scheme.name, plain, ops_->prepare(plain, format, &owner));
  }

 private:
  void rows(std::string_view name, const Linear& plain, const Linear& w) {
    for (const int64_t n : {1, 4, 8, 16, 512}) time(name, plain, w, n);
  }

  // Stops the program if the last row's first outputs differ from the reference's.
  void check(const Tensor& got, const Tensor& x, const Linear& plain) {
    Linear part = plain;
    part.weight = top(plain.weight, kChecked);
    const int block = plain.format.block_out;
    if (plain.scale) part.scale = top(plain.scale, block == 0 ? 1 : kChecked / block);
    Buffer owner, want_owner;
    const Linear ready = judge_->prepare(part, plain.format, &owner);
    const Tensor want = make(want_owner, DType::kBF16, {1, kChecked});
    judge_->linear(want, x.row_range(x.rows() - 1, 1), ready);
    double worst = 0, size = 0;
    for (int64_t o = 0; o < kChecked; ++o) {
      const double a = to_float(got.row<BF16>(got.rows() - 1)[o]), b = to_float(want.as<BF16>()[o]);
      worst = std::max(worst, std::isnan(a) ? INFINITY : std::abs(a - b));
      size = std::max(size, std::abs(b));
    }
    if (worst <= 0.01 * size) return;
    fmt::print("wrong by {} of {}\n", worst, size);
    std::exit(1);
  }

  void time(std::string_view name, const Linear& plain, const Linear& w, int64_t n) {
    Buffer x_owner, y_owner;
    const Tensor x = make(x_owner, DType::kBF16, {n, kIn});
    const Tensor y = make(y_owner, DType::kBF16, {n, kOut});
    fill(x, 1);
    ops_->linear(y, x, w);
    check(y, x, plain);
    const double seconds = best_time(threads_, [&] { ops_->linear(y, x, w); });
    auto bytes = static_cast<double>(byte_size(w.format.dtype, kOut * kIn));
    if (w.scale) bytes += static_cast<double>(byte_size(w.scale.dtype, plain.scale.elements()));
    const double flops = 2.0 * kOut * kIn * static_cast<double>(n);
    const bool integers = w.format.input && w.format.input->dtype == DType::kI8;
    const double limit = integers ? limits_.int8_ops : limits_.bf16_flops;
    fmt::print(
        "{:<15} {:>4} rows {:>10.1f} us {:>6.1f} GB/s {:>4.0f} % of the read limit {:>6.3f} "
        "TFLOP/s {:>4.0f} % of {}\n",
        name, n, seconds * 1e6, bytes / seconds / 1e9, 100 * bytes / seconds / limits_.read_bytes,
        flops / seconds / 1e12, 100 * flops / seconds / limit, integers ? "int8" : "bf16");
    std::fflush(stdout);
  }

  int threads_;
  Limits limits_;
  std::unique_ptr<Ops> ops_, judge_;
  Buffer plain_owner_;
  Tensor plain_;
};

}  // namespace
}  // namespace skiff::bench

int main(int argc, char** argv) {
  skiff::bench::Bench bench(argc > 1 ? std::max(1, std::atoi(argv[1]))
                                     : skiff::usable_processors());
  const std::string_view only = argc > 2 ? argv[2] : "";
  if (only.empty()) bench.bf16();
  for (const skiff::model::Scheme& scheme : skiff::model::schemes())
    if (only.empty() || scheme.name == only) bench.scheme(scheme);
}

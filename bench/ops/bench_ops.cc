// Times operations of the cpu backend against the limits of the machine, after checking each
// result against the reference backend.
//   bench_ops [threads]
// A single thread is timed in its own processor time, so that other jobs disturb it less.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/processors.h"
#include "machine_limits.h"
#include "ops/cpu/cpu_features.h"
#include "ops/cpu/cpu_ops.h"
#include "tensor/convert.h"
#include "tensor/memory.h"

namespace skiff::bench {
namespace {

struct Cost {
  double bytes = 0, flops = 0;
};

// Owns the tensors of one case.
class Data {
 public:
  Tensor make(DType dtype, std::initializer_list<int64_t> shape) {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    buffers_.emplace_back(Device{}, static_cast<size_t>(n) * bytes(dtype));
    return buffers_.back().view(dtype, shape);
  }
  Tensor random(DType dtype, std::initializer_list<int64_t> shape, double scale) {
    const Tensor t = make(dtype, shape);
    for (int64_t i = 0; i < t.elements(); ++i) {
      const auto x = static_cast<float>((uniform_draw(7, next_++) - 0.5) * 2 * scale);
      if (dtype == DType::kF32)
        t.as<float>()[i] = x;
      else
        t.as<BF16>()[i] = to_bf16(x);
    }
    return t;
  }
  Tensor ints(const std::vector<int32_t>& values) {
    const Tensor t = make(DType::kI32, {static_cast<int64_t>(values.size())});
    std::copy(values.begin(), values.end(), t.as<int32_t>());
    return t;
  }

 private:
  std::vector<Buffer> buffers_;
  uint64_t next_ = 0;
};

double value(const Tensor& t, int64_t r, int64_t c) {
  return t.dtype == DType::kF32 ? t.row<float>(r)[c] : to_float(t.row<BF16>(r)[c]);
}

// Stops the program if `got` differs from `want` by more than a fraction of want's size.
void check(const std::string& what, const Tensor& got, const Tensor& want, double share) {
  double worst = 0, size = 0;
  for (int64_t r = 0; r < got.rows(); ++r)
    for (int64_t c = 0; c < got.cols(); ++c) {
      const double error = std::abs(value(got, r, c) - value(want, r, c));
      worst = std::max(std::isnan(error) ? INFINITY : error, worst);
      size = std::max(size, std::abs(value(want, r, c)));
    }
  if (worst <= share * size) return;
  fmt::print("{}: wrong by {} of {}\n", what, worst, size);
  std::exit(1);
}

class Bench {
 public:
  Bench(int threads, const Limits& limits)
      : threads_(threads),
        limits_(limits),
        ops_(make_cpu_ops(threads)),
        judge_(make_reference_ops()) {}

  void linear(DType dtype, int rows, int out, int in) {
    Data data;
    const Linear plain = {.weight = data.random(dtype, {out, in}, 0.05), .bias = {}};
    const Tensor x = data.random(dtype, {rows, in}, 1), y = data.make(dtype, {rows, out});
    Buffer owner, plain_owner;
    const Linear w = ops_->prepare(plain, {dtype}, &owner);
    const std::string what =
        fmt::format("linear {} rows {} out {} in {}", name(dtype), rows, out, in);
    ops_->linear(y, x, w);
    // The reference is slow: the first row and a few outputs are enough to notice a wrong path.
    const Tensor some = data.make(dtype, {1, 64});
    const Linear part = judge_->prepare({.weight = plain.weight.row_range(0, 64), .bias = {}},
                                        {dtype}, &plain_owner);
    judge_->linear(some, x.row_range(rows - 1, 1), part);
    check(what, y.row_range(rows - 1, 1).col_range(0, 64), some, tolerance(dtype));
    const double n = static_cast<double>(out) * in;
    time(
        what, [&] { ops_->linear(y, x, w); }, {n * static_cast<double>(bytes(dtype)), 2 * n * rows},
        dtype);
  }

  // The batch is the last `rows` positions of one sequence of `context` tokens.
  void attention(DType dtype, int rows, int context, const Gqa& spec) {
    constexpr int kPageSize = 64;
    Data data;
    const int pages = (context + kPageSize - 1) / kPageSize;
    const KvLayer kv = {
        .k = data.random(dtype, {pages, kPageSize, spec.kv_heads, spec.head_dim}, 1),
        .v = data.random(dtype, {pages, kPageSize, spec.kv_heads, spec.head_dim}, 1),
        .page_size = kPageSize};
    const int64_t cols = static_cast<int64_t>(spec.heads) * spec.head_dim;
    const Tensor q = data.random(dtype, {rows, cols}, 1), out = data.make(dtype, {rows, cols});
    const RaggedBatch batch = sequence(data, rows, context, pages);
    const std::string what =
        fmt::format("attention {} rows {} context {} heads {}/{} dim {}", name(dtype), rows,
                    context, spec.heads, spec.kv_heads, spec.head_dim);
    ops_->begin_step(batch, {});
    ops_->gqa_attend(out, q, spec, batch, kv);
    const RaggedBatch last = sequence(data, 1, context, pages);
    const Tensor want = data.make(dtype, {1, cols});
    judge_->begin_step(last, {});
    judge_->gqa_attend(want, q.row_range(rows - 1, 1), spec, last, kv);
    check(what, out.row_range(rows - 1, 1), want, tolerance(dtype));

    const double seen = static_cast<double>(rows) * (context - (rows - 1) / 2.0);
    const double kv_cols = 2.0 * spec.kv_heads * spec.head_dim;
    time(
        what, [&] { ops_->gqa_attend(out, q, spec, batch, kv); },
        {context * kv_cols * static_cast<double>(bytes(dtype)),
         4 * seen * static_cast<double>(cols)},
        dtype);
  }

 private:
  static double tolerance(DType dtype) { return dtype == DType::kF32 ? 1e-5 : 0.02; }

  RaggedBatch sequence(Data& data, int rows, int context, int pages) {
    std::vector<int32_t> positions, table;
    for (int i = context - rows; i < context; ++i) positions.push_back(i);
    for (int i = 0; i < pages; ++i) table.push_back(pages - 1 - i);
    RaggedBatch batch = {.num_seqs = 1,
                         .num_tokens = rows,
                         .max_rows = rows,
                         .max_kv = context,
                         .tokens = {},
                         .positions = {},
                         .row_start = {},
                         .kv_len = {},
                         .pages = {},
                         .out_rows = {}};
    batch.tokens = data.ints(std::vector<int32_t>(static_cast<size_t>(rows), 1));
    batch.positions = data.ints(positions);
    batch.row_start = data.ints({0, rows});
    batch.kv_len = data.ints({context});
    batch.pages = data.ints(table).reshaped({1, pages});
    batch.out_rows = data.ints({rows - 1});
    return batch;
  }

  // Prints the best time of `run`, as best_time() has it.
  void time(const std::string& what, const std::function<void()>& run, Cost cost, DType dtype) {
    const double seconds = best_time(threads_, run);
    const double peak = dtype == DType::kBF16 ? limits_.bf16_flops : limits_.f32_flops;
    const double least =
        std::max(cost.bytes / limits_.read_bytes, peak > 0 ? cost.flops / peak : 0);
    fmt::print("{:<58} {:>9.1f} us {:>7.1f} GB/s {:>7.3f} TFLOP/s {:>4.0f} % of the limit\n", what,
               seconds * 1e6, cost.bytes / seconds / 1e9, cost.flops / seconds / 1e12,
               least / seconds * 100);
  }

  int threads_;
  Limits limits_;
  std::unique_ptr<Ops> ops_, judge_;
};

void run(int threads) {
  const Limits limits = measure_limits(threads);
  fmt::print("{} threads, {}: read {:.1f} GB/s, f32 {:.2f} TFLOP/s, bf16 {:.2f} TFLOP/s\n", threads,
             cpu::kernels_for(cpu::best_isa()).name, limits.read_bytes / 1e9,
             limits.f32_flops / 1e12, limits.bf16_flops / 1e12);
  Bench bench(threads, limits);
  const Gqa spec = {.heads = 32, .kv_heads = 8, .head_dim = 128, .rope = {}};
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    // The first matrix fits this machine's last cache; the second does not.
    for (int rows : {1, 4, 16}) bench.linear(dtype, rows, 4096, 4096);
    for (int rows : {256, 1024}) bench.linear(dtype, rows, 14336, 4096);
    // Half a gigabyte of weights and more: no cache holds them, so memory is the limit.
    for (int rows : {1, 16}) bench.linear(dtype, rows, 65536, 4096);
    bench.attention(dtype, 1, 4096, spec);
    bench.attention(dtype, 1, 32768, spec);
    bench.attention(dtype, 1024, 1024, spec);
  }
}

}  // namespace
}  // namespace skiff::bench

int main(int argc, char** argv) {
  skiff::bench::run(argc > 1 ? std::max(1, std::atoi(argv[1])) : skiff::usable_processors());
}

// Times what a layer of Llama-3.2-1B computes of a prompt on the cpu backend, after checking each
// result against the reference backend.
//   bench_prompts [threads [scheme [rows]]]
// A scheme is one of --quantization, `bf16`, or `attention`. A single thread is timed in its own
// processor time, so that other jobs disturb it less.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

#include "base/processors.h"
#include "bench_data.h"
#include "machine_limits.h"
#include "model/schemes.h"
#include "ops/cpu/cpu_ops.h"
#include "tensor/convert.h"
#include "tensor/memory.h"

namespace skiff::bench {
namespace {

constexpr int64_t kChecked = 128;  // outputs of a row
constexpr int kPageSize = 64;
struct Product {
  std::string_view name;
  int64_t out, in;
};
constexpr Product kProducts[] = {
    {"qkv", 3072, 2048}, {"o", 2048, 2048}, {"gate and up", 16'384, 2048}, {"down", 2048, 8192}};

// Stops the program if `got` differs from `want` by more than a hundredth of want's size.
void check(std::string_view what, const Tensor& got, const Tensor& want) {
  double worst = 0, size = 0;
  for (int64_t i = 0; i < want.elements(); ++i) {
    const double a = to_float(got.as<BF16>()[i]), b = to_float(want.as<BF16>()[i]);
    worst = std::max(worst, std::isnan(a) ? INFINITY : std::abs(a - b));
    size = std::max(size, std::abs(b));
  }
  if (worst <= 0.01 * size) return;
  fmt::print("{}: wrong by {} of {}\n", what, worst, size);
  std::exit(1);
}

class Bench {
 public:
  Bench(int threads, int64_t rows)
      : threads_(threads),
        rows_(rows),
        limits_(measure_limits(threads)),
        ops_(make_cpu_ops(threads)),
        judge_(make_reference_ops()) {
    fmt::print("{} threads: read {:.1f} GB/s, bf16 {:.2f} TFLOP/s\n", threads,
               limits_.read_bytes / 1e9, limits_.bf16_flops / 1e12);
  }

  void products(std::string_view name, const model::Scheme* scheme) {
    double sum = 0;
    for (const Product& p : kProducts) sum += product(name, p, scheme);
    fmt::print("{:<15} {:<12} {:>10.2f} ms\n", name, "all", sum * 1e3);
  }

  void attention(int rows, int context) {
    Data data;
    const Gqa spec = {.heads = 32, .kv_heads = 8, .head_dim = 64, .rope = {}};
    const int pages = (context + kPageSize - 1) / kPageSize;
    const KvLayer kv = {.k = data.random({pages, kPageSize, 8, 64}, 1),
                        .v = data.random({pages, kPageSize, 8, 64}, 1),
                        .page_size = kPageSize};
    const Tensor q = data.random({rows, 2048}, 1), out = data.make(DType::kBF16, {rows, 2048});
    const Tensor want = data.make(DType::kBF16, {1, 2048});
    const RaggedBatch all = batch(data, rows, context, pages);
    const RaggedBatch last = batch(data, 1, context, pages);
    judge_->gqa_attend(want, q.row_range(rows - 1, 1), spec, last, kv);
    ops_->begin_step(all, {});
    const auto run = [&] { ops_->gqa_attend(out, q, spec, all, kv); };
    run();
    check("attention", out.row_range(rows - 1, 1), want);
    const double seen = rows * (context - (rows - 1) / 2.0);
    report("attention", fmt::format("{} of {}", rows, context), time(run), 4 * seen * 2048);
  }

 private:
  double product(std::string_view name, const Product& p, const model::Scheme* scheme) {
    Data data;
    const Tensor weight = data.random({p.out, p.in}, 0.05f);
    Linear plain = {.weight = weight, .format = {DType::kBF16}};
    if (scheme) {
      const WeightFormat format = *scheme->format_for(p.in);
      plain = {.weight = data.make(format.dtype, {p.out, p.in}), .format = format};
      plain.scale = data.make(
          *format.scale, {num_blocks(p.out, format.block_out), num_blocks(p.in, format.block_in)});
      ops_->quantize(plain, weight, scheme->rule);
    }
    const Tensor x = data.random({rows_, p.in}, 1), y = data.make(DType::kBF16, {rows_, p.out});
    const Linear w = ops_->prepare(plain, plain.format, &data.owner());
    const auto run = [&] { ops_->linear(y, x, w); };
    run();
    Linear part = plain;
    part.weight.dim[0] = kChecked;
    const int block = plain.format.block_out;
    if (plain.scale) part.scale.dim[0] = block == 0 ? 1 : kChecked / block;
    const Tensor want = data.make(DType::kBF16, {1, kChecked});
    judge_->linear(want, x.row_range(rows_ - 1, 1),
                   judge_->prepare(part, plain.format, &data.owner()));
    check(name, y.row_range(rows_ - 1, 1), want);
    const double seconds = time(run);
    report(name, p.name, seconds, 2.0 * static_cast<double>(p.out * p.in * rows_));
    return seconds;
  }

  RaggedBatch batch(Data& data, int rows, int context, int pages) {
    RaggedBatch batch = {.num_seqs = 1,
                         .num_tokens = rows,
                         .max_rows = rows,
                         .max_kv = context,
                         .tokens = data.ints(1, rows, 0),
                         .positions = data.ints(context - rows, rows, 1),
                         .row_start = data.ints(0, 2, rows),
                         .kv_len = data.ints(context, 1, 0),
                         .pages = {},
                         .out_rows = data.ints(rows - 1, 1, 0)};
    batch.pages = data.ints(pages - 1, pages, -1).reshaped({1, pages});
    return batch;
  }

  double time(const std::function<void()>& run) const { return best_time(threads_, run); }

  void report(std::string_view name, std::string_view what, double seconds, double flops) {
    fmt::print("{:<15} {:<12} {:>10.2f} ms {:>6.3f} TFLOP/s {:>4.0f} % of bf16\n", name, what,
               seconds * 1e3, flops / seconds / 1e12, 100 * flops / seconds / limits_.bf16_flops);
    std::fflush(stdout);
  }

  int threads_;
  int64_t rows_;
  Limits limits_;
  std::unique_ptr<Ops> ops_, judge_;
};

}  // namespace
}  // namespace skiff::bench

int main(int argc, char** argv) {
  const std::string_view only = argc > 2 ? argv[2] : "";
  const int rows = argc > 3 ? std::max(1, std::atoi(argv[3])) : 512;
  skiff::bench::Bench bench(argc > 1 ? std::max(1, std::atoi(argv[1])) : skiff::usable_processors(),
                            rows);
  const auto wanted = [&](std::string_view name) { return only.empty() || only == name; };
  for (const int context : {512, 4096})
    for (const int n : {1, rows})
      if (wanted("attention")) bench.attention(n, context);
  if (wanted("bf16")) bench.products("bf16", nullptr);
  for (const skiff::model::Scheme& scheme : skiff::model::schemes())
    if (wanted(scheme.name)) bench.products(scheme.name, &scheme);
}

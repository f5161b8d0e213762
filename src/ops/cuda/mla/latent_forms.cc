#include "ops/cuda/mla/latent_forms.h"

#include "ops/cuda/check.h"

namespace skiff::cuda {
namespace {

// Computes the absorbed rows: the products of heads take run after run of them.
void attend_absorbed(const LatentStep& step, const std::vector<RowRun>& runs,
                     const LatentForms& forms, Arena& arena, cudaStream_t stream) {
  const Mla& spec = step.spec;
  const int64_t rows = step.q.rows(), heads = spec.heads;
  const Tensor queries = arena.take(step.q.dtype, {rows * heads, spec.kv_rank});
  const Tensor seen = arena.take(step.q.dtype, {rows * heads, spec.kv_rank});
  const Tensor by_head = step.q.reshaped({rows * heads, spec.q_dim()});
  const Tensor values = step.values.reshaped({rows * heads, spec.v_dim});
  const auto each_run = [&](const Tensor& out, const Tensor& x, const Linear& w) {
    for (const RowRun& run : runs)
      forms.products.product(out.row_range(run.row * heads, run.rows * heads),
                             x.row_range(run.row * heads, run.rows * heads), w, stream);
  };
  each_run(queries, by_head.col_range(0, spec.nope_dim), step.absorb);
  forms.absorbed.attend(seen, queries, by_head.col_range(spec.nope_dim, spec.rope_dim), spec,
                        step.batch, step.cache, stream, true);
  each_run(values, seen, step.value);
}

void clear_padding(const LatentStep& step, cudaStream_t stream) {
  const int64_t live = step.batch.host_row_start.back(), rows = step.values.rows();
  if (live == rows) return;
  const Tensor padding = step.values.row_range(live, rows - live);
  const size_t width = static_cast<size_t>(padding.cols()) * 2;
  check(cudaMemset2DAsync(padding.data, static_cast<size_t>(padding.row_stride) * 2, 0, width,
                          static_cast<size_t>(padding.rows()), stream),
        "clearing padding rows");
}

}  // namespace

void latent_attend(const LatentStep& step, const LatentForms& forms, Arena& arena,
                   cudaStream_t stream) {
  const RaggedBatch& batch = step.batch;
  const bool expanded = forms.expanded.attend(step, stream);
  // Where no row is expanded, the launches follow from the number of rows, as a graph needs them.
  const std::vector<RowRun> runs =
      expanded ? absorbed_runs(batch.host_row_start, batch.host_kv_len)
               : std::vector<RowRun>{{0, static_cast<int32_t>(step.q.rows())}};
  const size_t mark = arena.mark();
  if (!runs.empty()) attend_absorbed(step, runs, forms, arena, stream);
  arena.rewind(mark);
  if (expanded) clear_padding(step, stream);
}

}  // namespace skiff::cuda

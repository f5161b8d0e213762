// ops/cuda/linear/stream_clusters.cu -- dense GEMMs of packed weights by clusters of blocks that
// share the inner dimension.
#include <algorithm>

#include "ops/cuda/align.h"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/linear/stream_call.h"
#include "ops/cuda/quant/atom_call.h"
#include "ops/cuda/quant/atom_splits.h"

namespace skiff::cuda {
namespace {

// Returns whether there are kernels for the weight: its scales are of whole rows.
bool takes_clusters(const Linear& w) {
  if (!is_atoms(w)) return false;
  const AtomFormat format = atoms::format_of(w);
  const bool codes = format.codes == Codes::kFour || format.codes == Codes::kEight;
  return codes && format.groups == 0 && !format.zeros;
}

}  // namespace

// Returns whether clusters are the fastest way, after starting them.
bool StreamedProducts::runs_in_clusters(const Call& call, cudaStream_t stream) const {
  constexpr int64_t kFewestRows = 32, kMostJobs = 4;
  const int64_t rows = call.out.rows(), n = call.job_rows, jobs = (rows + n - 1) / n;
  if (!takes_clusters(call.w) || n < kFewestRows || jobs > kMostJobs) return false;
  const int64_t chunks = atoms::chunks_of(call.x);
  const int tiles = tiles_of(static_cast<int>(call.out.cols()), call.gated);
  const atoms::SplitShape shape = atoms::split_shape(n, tiles, jobs, chunks, places_);
  const atoms::WaysToCut others = atoms::ways_to_cut(n, jobs * tiles, chunks, multiprocessors_);
  if (shape.cost >= std::min(others.whole, others.cut)) return false;
  const MetRows met = changes_rows(call.w)
                          ? meet(inputs_, met_by(call.w), call.x, call.w, call.jobs, stream)
                          : MetRows{.x = call.x};
  const Tensor& out = call.out;
  const streamed::StreamArgs args = {.jobs = {},
                                     .one_row = false,
                                     .jobs_early = false,
                                     .rows = static_cast<int>(rows),
                                     .tiles = tiles / shape.tiles,
                                     .chunks = static_cast<int>(chunks),
                                     .split = false,
                                     .cut = 0,
                                     .next_at_once = true,
                                     .packed = false,
                                     .keep_weights = Keep::kFirstToGo,
                                     .out = out.data,
                                     .out_stride = out.row_stride,
                                     .out_f32 = out.dtype == DType::kF32,
                                     .out_lines = false,
                                     .features = static_cast<int>(out.cols()),
                                     .bias = call.w.bias ? call.w.bias.as<float>() : nullptr,
                                     .act = call.act,
                                     .claims = nullptr,
                                     .jobs_at_once = 1,
                                     .counters = nullptr,
                                     .partials = nullptr};
  const atoms::SplitLaunch how = {
      .kind = {.rows = static_cast<int>(n), .gated = call.gated, .tiles = shape.tiles},
      .splits = shape.splits,
      .blocks = static_cast<unsigned>(jobs * tiles / shape.tiles * shape.splits),
      .stream = stream};
  const auto start = atoms::format_of(call.w).codes == Codes::kFour
                         ? atoms::start_split_of<Codes::kFour>
                         : atoms::start_split_of<Codes::kEight>;
  start(how, atoms::row_map(met.x, atoms::box_rows(static_cast<int>(n))), args,
        atoms::args_of(call.w, met, {}));
  return true;
}

}  // namespace skiff::cuda

#include "ops/cuda/linear/stream.h"

#include <algorithm>

#include "ops/cuda/align.h"
#include "ops/cuda/device_facts.h"
#include "ops/cuda/hopper/tensor_map.h"
#include "ops/cuda/linear/shape.h"
#include "ops/cuda/linear/stream_call.h"
#include "ops/cuda/linear/stream_kernels.h"
#include "ops/cuda/linear/tiles.h"
#include "ops/cuda/quant/atom_call.h"
#include "ops/cuda/quant/atom_splits.h"
#include "ops/cuda/quant/direct_call.h"
#include "ops/cuda/quant/float8_call.h"

namespace skiff::cuda {
namespace {

using namespace streamed;

constexpr int kCounters = kCounterBytes / sizeof(unsigned) - kClaimCounters;
// There may be two lines of chunks, and three blocks on a multiprocessor.
constexpr int kMaxMultiprocessors = kCounters / 6;
// StreamArgs::jobs_at_once: the blocks of a device then share about as many bytes of x as of
// weights.
constexpr int kJobsAtOnce = 8;

// Returns whether the weight is quantized.
bool is_codes(const Linear& w) { return is_atoms(w) || is_float8_rows(w); }

// Returns whether pairs of the weight's tiles are converted as fast as they can come.
bool is_fast(const Linear& w) {
  if (!is_atoms(w)) return false;
  const AtomFormat format = atoms::format_of(w);
  return atoms::are_fast(format.codes, format.groups, 2);
}

// Returns whether packed e4m3 meets e4m3: its sums are scaled chunk by chunk.
bool is_held(const Linear& w) { return met_by(w) == Met::kFloat8; }

int chunks_of(const Tensor& x) { return static_cast<int>((x.cols() + kChunk - 1) / kChunk); }

// With jobs of at most so many rows most experts have a single one.
constexpr int kSingleJobs = 32;

// Returns whether weights are read once, or at about the same time by all who read them: they had
// better leave the L2 before what will be read again.
bool is_read_once(int job_rows, bool many_tiles) {
  return job_rows <= kSingleJobs || (job_rows <= kWidestSplit && !many_tiles);
}

// A multiprocessor has many chunks where it has so many.
constexpr int64_t kManyChunks = 16;

// Blocks of a multiprocessor for a GEMM of packed weights with so many chunks. Where there are few,
// a larger ring holds more of them before rows of x are there. Pairs of tiles are only taken where
// there are many.
int atom_blocks_of(const AtomFormat& format, int rows, int tiles, int64_t chunks,
                   int multiprocessors) {
  const bool many = tiles > 1 || chunks >= kManyChunks * multiprocessors;
  return many ? atoms::most_blocks(format.codes, rows, tiles) : 1;
}

// Dimensions [in, 8 rows, gate or up, groups of 8 rows, experts], or [in, out, 1, 1, experts].
CUtensorMap weight_map(const Linear& w, bool gated) {
  if (is_tiles(w)) {
    const TileMap map = tile_map(w.experts, features(w), inputs(w), kTileRows, gated);
    return word_map(w.weight.data, map.size, map.stride_bytes, map.box);
  }
  const auto experts = static_cast<uint64_t>(std::max<int64_t>(1, w.experts));
  const auto rows = static_cast<uint64_t>(features(w)), in = static_cast<uint64_t>(inputs(w));
  const uint64_t row = 2 * in, all = rows * row;
  if (gated) {
    const uint64_t size[] = {in, 8, 2, rows / 16, experts}, stride[] = {row, all / 2, 8 * row, all};
    const uint32_t box[] = {kChunk, 8, 2, kTileRows / 16, 1};
    return tensor_map(w.weight.data, size, stride, box, L2Line::k128);
  }
  const uint64_t size[] = {in, rows, 1, 1, experts}, stride[] = {row, all, all, all};
  const uint32_t box[] = {kChunk, kTileRows, 1, 1, 1};
  return tensor_map(w.weight.data, size, stride, box, L2Line::k128);
}

CUtensorMap row_map(const Tensor& x, int rows) {
  const uint64_t size[] = {static_cast<uint64_t>(x.cols()), static_cast<uint64_t>(x.rows())};
  const uint64_t stride[] = {2 * static_cast<uint64_t>(x.row_stride)};
  const uint32_t box[] = {kChunk, static_cast<uint32_t>(full_box_rows(rows))};
  return tensor_map(x.data, size, stride, box);
}

}  // namespace

StreamedProducts::StreamedProducts(void* workspace, const InputScratch& inputs, bool portable,
                                   bool one_order)
    : workspace_(workspace), inputs_(inputs), one_order_(one_order) {
  multiprocessors_ = std::min(attribute(cudaDevAttrMultiProcessorCount), kMaxMultiprocessors);
  hopper_ = !portable && current_runs_hopper_kernels();
  if (!hopper_) return;
  require_tensor_maps();
  check(cudaMemset(workspace_, 0, kCounterBytes), "clearing the GEMMs' workspace");
  // Kernels run in streams that do not wait for the one in which memory is cleared. To wait for the
  // whole device would end what another engine of the process is recording on it.
  check(cudaStreamSynchronize(nullptr), "clearing the GEMMs' workspace");
  allow_stream_kernels<false>();
  allow_stream_kernels<true>();
  atoms::allow_all_atom_kernels();
  atoms::allow_split_kernels<Codes::kFour>();
  atoms::allow_split_kernels<Codes::kEight>();
  places_ = atoms::cluster_places();
  direct::allow_direct_kernels();
  float8::allow_float8_kernels();
}

size_t StreamedProducts::workspace_bytes() {
  const auto blocks = static_cast<size_t>(attribute(cudaDevAttrMultiProcessorCount));
  return kCounterBytes + blocks * kBlockPartials * sizeof(float);
}

bool StreamedProducts::takes(const Tensor& x, const Linear& w, bool gated) const {
  return hopper_ && x.dtype == DType::kBF16 &&
         (is_tiles(w) || is_plain(w, DType::kBF16) || is_codes(w)) && is_aligned(x) &&
         is_aligned(w.weight.data) && x.cols() % 8 == 0 &&
         (!gated || (is_float8_rows(w) ? float8::takes_gated(features(w)) : features(w) % 16 == 0));
}

void StreamedProducts::run(const Call& call, cudaStream_t stream) const {
  const Tensor &out = call.out, &x = call.x;
  if (out.rows() == 0) return;
  SKIFF_CHECK(call.met || takes(x, call.w, call.gated), "a GEMM that cannot be streamed");
  SKIFF_CHECK(!call.w.bias || (!call.gated && call.w.experts == 0));
  SKIFF_CHECK(out.dtype == DType::kBF16 || (out.dtype == DType::kF32 && !call.gated), "out is {}",
              name(out.dtype));
  if (is_direct(call)) return run_direct(call, stream);
  const bool codes = is_codes(call.w);
  MetRows met = call.met.value_or(MetRows{.x = x});
  if (!call.met && codes && changes_rows(call.w))
    met = meet(inputs_, met_by(call.w), x, call.w, call.jobs, stream);
  const int n = rows_of_kernel(call);
  SKIFF_CHECK(n <= rows_of_job(n, call.w), "jobs of {} rows", n);
  const int columns = static_cast<int>(out.cols());
  const int single_tiles = tiles_of(columns, call.gated);
  const int at_once = tiles_at_once(call, n, single_tiles), tiles = single_tiles / at_once;
  const int chunks = codes ? atoms::chunks_of(x) : chunks_of(x);
  const bool many = has_many_tiles(call, n, tiles);
  const bool split = n <= kWidestSplit && !call.whole && !many;
  JobList jobs = call.jobs;
  if (!split) jobs.known = 0;  // only what is cut has two lines of chunks
  SKIFF_CHECK(jobs.known == 0 || 2 * n * at_once <= kWidestSplit, "no room for two lines");
  auto* counters = static_cast<unsigned*>(workspace_);
  const StreamArgs args = {
      .jobs = jobs,
      .one_row = jobs.expert && met.x.rows() == 1,
      .jobs_early = call.jobs_early,
      .rows = static_cast<int>(out.rows()),
      .tiles = tiles,
      .chunks = chunks,
      .split = split,
      .cut = call.pieces ? pieces_of(tiles, chunks) : 0,
      .next_at_once = !call.list_follows,
      .packed = is_tiles(call.w),
      .keep_weights = is_read_once(n, many) ? Keep::kFirstToGo : Keep::kNormal,
      .out = out.data,
      .out_stride = out.row_stride,
      .out_f32 = out.dtype == DType::kF32,
      .out_lines = columns % 8 == 0 && is_aligned(out),
      .features = columns,
      .bias = call.w.bias ? call.w.bias.as<float>() : nullptr,
      .act = call.act,
      .claims = split || !jobs.jobs ? nullptr : counters + kCounters + (call.gated ? 0 : 2),
      .jobs_at_once = many ? kJobsAtOnce : 1,
      .counters = counters,
      .partials = reinterpret_cast<float*>(static_cast<char*>(workspace_) + kCounterBytes)};
  const Launch how = {multiprocessors_, kThreads, shared_bytes(n), stream};
  if (is_float8_rows(call.w))
    return float8::start_float8({.kind = {.rows = n,
                                          .gated = call.gated,
                                          .tiles = at_once,
                                          .rounds = call.rounded.has_value()},
                                 .blocks = how.grid.x,
                                 .stream = stream},
                                args, met, call.w, call.rounded.value_or(MetRows{}));
  if (codes) {
    const AtomFormat format = atoms::format_of(call.w);
    const int64_t count = jobs.capacity > 0 ? jobs.capacity : (out.rows() + n - 1) / n;
    const int blocks = atom_blocks_of(format, n, at_once, count * tiles * chunks, multiprocessors_);
    const atoms::AtomKind kind = {
        .rows = n, .gated = call.gated, .blocks = blocks, .zeros = format.zeros, .tiles = at_once};
    return atoms::start_atoms(
        format, {.kind = kind, .multiprocessors = how.grid.x, .stream = stream},
        atoms::row_map(met.x, atoms::box_rows(n)), args, atoms::args_of(call.w, met, jobs));
  }
  (call.gated ? start_stream<true> : start_stream<false>)(n, how, weight_map(call.w, call.gated),
                                                          row_map(x, n), args);
}

// The rows of a job that the kernel has room for. Few rows of packed weights are summed in another
// order, and only packed weights have a kernel for 24.
int StreamedProducts::rows_of_kernel(const Call& call) const {
  if (is_atoms(call.w) && one_order_) return std::max(32, call.job_rows);
  const bool takes_any = is_atoms(call.w) && !is_held(call.w);
  return takes_any ? call.job_rows : dense_job_rows(call.job_rows);
}

// Returns whether a GEMM of experts, or of many rows by a quantized weight, has so many tiles that
// blocks had better take whole ones. Those that are taken at about the same time share their rows
// of x or their weights, which then come from the L2; where stream-K deals out the tiles, each
// block works in another place, and both come from memory for every tile.
bool StreamedProducts::has_many_tiles(const Call& call, int job_rows, int tiles) const {
  constexpr int64_t kRounds = 4;
  const bool many_rows = is_codes(call.w) && call.out.rows() > kWidestSplit;
  return (call.jobs.jobs || many_rows) &&
         jobs_expected(call, job_rows) * tiles >= kRounds * multiprocessors_;
}

// How many jobs a GEMM has at least, but for chance. Those of few rows are seldom full: where there
// are three times as many rows as experts, nearly all experts have one.
int64_t StreamedProducts::jobs_expected(const Call& call, int job_rows) const {
  const int64_t rows = call.out.rows(), full = rows / job_rows, experts = call.w.experts;
  const bool singles = call.jobs.jobs && job_rows <= kSingleJobs && is_fast(call.w);
  return singles && rows >= 3 * experts ? std::max(full, experts) : full;
}

// How many neighbouring tiles of weights a block had better multiply at a time: two of quantized
// weights, whose rows of x then come from the L2 half as often, where each multiprocessor has
// enough pairs of chunks. Measured on an H200, for 8 to 512 tokens and the experts of five models.
// stream-K cuts a line of pairs at other chunks than a line of tiles: where additions have one
// order, only whole tiles are taken by twos.
int StreamedProducts::tiles_at_once(const Call& call, int job_rows, int tiles) const {
  const bool takes =
      is_float8_rows(call.w) ||
      (is_atoms(call.w) && atoms::takes_pairs(atoms::format_of(call.w).groups) && !is_held(call.w));
  if (!takes || tiles % 2 != 0 || (one_order_ && !call.whole)) return 1;
  const bool many = has_many_tiles(call, job_rows, tiles / 2);
  if (job_rows > atoms::kMostCutPair) return many ? 2 : 1;
  if (is_float8_rows(call.w) || (!many && call.whole)) return 1;
  const bool four = atoms::format_of(call.w).element_bits() == 4;
  const int64_t chunks = atoms::chunks_of(call.x);
  // The end of a pair of so many rows takes long, if most jobs have them.
  constexpr int64_t kLongTile = 40;
  if (job_rows == atoms::kMostCutPair && !(call.jobs.jobs && is_fast(call.w)))
    return !many && four && call.gated && chunks >= kLongTile ? 2 : 1;
  // Elements of 8 bits by so few rows come as fast as the memory can bring them.
  if (call.gated && job_rows < 32 && !four) return 1;
  const int64_t enough = job_rows == 8 ? kManyChunks : 3 * kManyChunks;
  const int64_t jobs =
      std::max((call.out.rows() + job_rows - 1) / job_rows, jobs_expected(call, job_rows));
  return jobs * (tiles / 2) * chunks >= enough * multiprocessors_ ? 2 : 1;
}

// Returns whether a few rows meet quantized weights that need no ring: rows of one job, or the
// copies of one token.
bool StreamedProducts::is_direct(const Call& call) const {
  const int64_t rows = call.jobs.expert ? 1 : call.x.rows();
  return call.jobs.jobs == nullptr && !one_order_ && is_codes(call.w) &&
         direct::takes(call.w, rows) && direct::fits(call.x.rows(), call.x.cols());
}

bool StreamedProducts::triggers_late(const Tensor& x, const Linear& w) const {
  return is_direct({.out = {}, .x = x, .w = w});
}

void StreamedProducts::run_direct(const Call& call, cudaStream_t stream) const {
  MetRows met = {.x = call.x};
  if (is_float8_rows(call.w) && !direct::rounds(call.w, call.x.rows()))
    met = meet(inputs_, Met::kFloat8, call.x, call.w, call.jobs, stream);
  const direct::DirectArgs args = {.x = met.x.data,
                                   .x_stride = met.x.row_stride,
                                   .rows = static_cast<int>(call.x.rows()),
                                   .in = static_cast<int>(call.x.cols()),
                                   .jobs = call.jobs,
                                   .list_early = call.jobs_early,
                                   .one_row = call.x.rows() == 1,
                                   .out = call.out.data,
                                   .out_stride = call.out.row_stride,
                                   .out_f32 = call.out.dtype == DType::kF32,
                                   .features = static_cast<int>(call.out.cols()),
                                   .bias = call.w.bias ? call.w.bias.as<float>() : nullptr,
                                   .act = call.act};
  direct::start_direct(call.w, args, call.gated, met, multiprocessors_, stream, beside_);
}

// The chunks of each block where stream-K cuts the tiles of one job.
int StreamedProducts::pieces_of(int tiles, int chunks) const {
  return (tiles * chunks + multiprocessors_ - 1) / multiprocessors_;
}

// How a GEMM of more rows than stream-K takes at once is computed: in whole tiles of so many rows,
// or, where there would be too few tiles, by several calls. The numbers are cycles on an H200, of
// which only the ratios matter.
int StreamedProducts::rows_of_tiles(int64_t rows, int tiles, int chunks) const {
  constexpr int64_t kChunkOf128 = 620, kChunkOf256 = 1100, kTileEnd = 3000;
  constexpr int64_t kStreamedChunk = 800, kCallEnd = 5000;
  const auto waves = [&](int64_t n) {
    return ((rows + n - 1) / n * tiles + multiprocessors_ - 1) / multiprocessors_;
  };
  const int64_t wide = waves(256) * (chunks * kChunkOf256 + kTileEnd),
                narrow = waves(128) * (chunks * kChunkOf128 + kTileEnd),
                calls = (rows + kWidestSplit - 1) / kWidestSplit *
                        (pieces_of(tiles, chunks) * kStreamedChunk + kCallEnd);
  if (calls < std::min(wide, narrow)) return 0;
  return narrow < wide ? 128 : 256;
}

// A dense GEMM whose additions have the same order for every number of rows: that of stream-K for
// up to kWidestSplit rows.
void StreamedProducts::run_in_one_order(Call call, cudaStream_t stream) const {
  const Tensor out = call.out, x = call.x;
  const int64_t rows = out.rows();
  if (rows <= kWidestSplit) return run(call, stream);
  const int tiles = tiles_of(static_cast<int>(out.cols()), call.gated);
  call.job_rows = is_codes(call.w) ? 0 : rows_of_tiles(rows, tiles, chunks_of(x));
  call.whole = call.pieces = call.job_rows > 0;
  if (call.whole) return run(call, stream);
  for (int64_t r = 0; r < rows; r += kWidestSplit) {
    const int64_t n = std::min<int64_t>(kWidestSplit, rows - r);
    call.out = out.row_range(r, n);
    call.x = x.row_range(r, n);
    call.job_rows = dense_job_rows(n);
    run(call, stream);
  }
}

void StreamedProducts::run_dense(Call call, cudaStream_t stream) const {
  if (one_order_) return run_in_one_order(call, stream);
  if (runs_in_clusters(call, stream)) return;
  call.whole = is_atoms(call.w) && is_faster_whole(call);
  run(call, stream);
}

// Returns whether packed weights are multiplied faster in whole tiles, by fewer multiprocessors,
// than cut by stream-K.
bool StreamedProducts::is_faster_whole(const Call& call) const {
  const int64_t n = call.job_rows, jobs = (call.out.rows() + n - 1) / n;
  const int64_t tiles = jobs * tiles_of(static_cast<int>(call.out.cols()), call.gated);
  const auto costs = atoms::ways_to_cut(n, tiles, atoms::chunks_of(call.x), multiprocessors_);
  return 10 * costs.whole < 9 * costs.cut;
}

int StreamedProducts::rows_of_job(int rows, const Linear& w) {
  return is_codes(w) ? std::min(rows, kWidestSplit) : rows;
}

int StreamedProducts::rows_of_jobs(int64_t copies, int experts, const Linear& w) {
  if (!is_codes(w)) return job_rows(copies, experts);
  const int bits = is_atoms(w) ? atoms::format_of(w).element_bits() : 8;
  return rows_of_job(packed_job_rows(copies, experts, bits, is_fast(w)), w);
}

void StreamedProducts::product(Tensor out, Tensor x, const Linear& w, cudaStream_t stream) const {
  run_dense({.out = out, .x = x, .w = w, .job_rows = rows_of_job(dense_job_rows(x.rows()), w)},
            stream);
}

void StreamedProducts::product_in_one_chain(Tensor out, Tensor x, const Linear& w,
                                            cudaStream_t stream) const {
  run({.out = out, .x = x, .w = w, .job_rows = dense_job_rows(x.rows()), .whole = true}, stream);
}

void StreamedProducts::gated_product(Tensor out, Tensor x, const Linear& w, Act act,
                                     cudaStream_t stream) const {
  run_dense({.out = out,
             .x = x,
             .w = w,
             .gated = true,
             .act = act,
             .job_rows = rows_of_job(dense_job_rows(x.rows()), w)},
            stream);
}

void StreamedProducts::grouped(Tensor out, Tensor x, const Linear& w, const JobList& jobs, int rows,
                               cudaStream_t stream, const std::optional<MetRows>& met) const {
  run({.out = out,
       .x = x,
       .w = w,
       .jobs = jobs,
       .job_rows = rows,
       .whole = one_order_,
       .jobs_early = true,
       .met = met},
      stream);
}

StreamedProducts::Call StreamedProducts::gated_call(Tensor out, Tensor x, const Linear& w, Act act,
                                                    const JobList& jobs, int rows,
                                                    const std::optional<MetRows>& met) const {
  return {.out = out,
          .x = x,
          .w = w,
          .gated = true,
          .act = act,
          .jobs = jobs,
          .job_rows = rows,
          .whole = one_order_,
          .list_follows = true,
          .met = met};
}

void StreamedProducts::grouped_gated(Tensor out, Tensor x, const Linear& w, Act act,
                                     const JobList& jobs, int rows, cudaStream_t stream,
                                     const std::optional<MetRows>& met) const {
  run(gated_call(out, x, w, act, jobs, rows, met), stream);
}

std::optional<MetRows> StreamedProducts::grouped_gated_rounded(Tensor out, const MetRows& met,
                                                               const Linear& w, const Linear& next,
                                                               Act act, const JobList& jobs,
                                                               int rows,
                                                               cudaStream_t stream) const {
  Call call = gated_call(out, met.x, w, act, jobs, rows, met);
  const int tiles = tiles_of(static_cast<int>(out.cols()), true);
  if (!is_float8_rows(w) || tiles_at_once(call, rows, tiles) != 2) return {};
  call.rounded = groups_in_place(inputs_, out, next);
  // Codes and scales of x are read while scales of the outputs are written.
  const auto* begin = static_cast<const std::byte*>(inputs_.data);
  const std::byte* end = begin + met_scale_bytes(out.rows(), out.cols());
  const auto is_taken = [&](const void* p) { return p >= begin && p < end; };
  if (!call.rounded || is_taken(met.chunk_scales) || is_taken(met.x.data)) return {};
  run(call, stream);
  return call.rounded;
}

}  // namespace skiff::cuda

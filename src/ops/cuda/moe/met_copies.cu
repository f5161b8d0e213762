#include "ops/cuda/moe/met_copies.h"

#include "base/check.h"
#include "ops/cuda/launch.cuh"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kManyRows = 512;  // Fewer are not worth a kernel more.

struct ScaleCopies {
  float* to;  // [chunks][to_stride]
  const float* from;
  int64_t to_stride, from_stride;
  const int32_t *order, *start;
  int experts, top_k;
};

// A thread copies the scale of one chunk of one copy.
__global__ void __launch_bounds__(kThreads) copy_scales_kernel(ScaleCopies a) {
  let_next_start();
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (row >= a.start[a.experts]) return;
  a.to[blockIdx.y * a.to_stride + row] =
      a.from[blockIdx.y * a.from_stride + a.order[row] / a.top_k];
}

size_t whole_lines(size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

bool meets_before_copies(const InputScratch& scratch, const Tensor& x, const Linear& w,
                         int64_t copies) {
  const std::optional<InputFormat>& input = w.format.input;
  return x.rows() >= kManyRows && input && input->scales == InputFormat::kGroups && !w.order &&
         met_by(w) == Met::kFloat8 && x.cols() % kAtomWidth == 0 &&
         whole_lines(met_rows_bytes(Met::kFloat8, x.rows(), x.cols())) +
                 met_scale_bytes(copies, x.cols()) <=
             scratch.bytes;
}

MetRows meet_copies(const InputScratch& scratch, const Permutation& to, const Tensor& x,
                    const Linear& w, const Routing& routing, cudaStream_t stream) {
  const int64_t copies = routing.expert.elements();
  SKIFF_CHECK(meets_before_copies(scratch, x, w, copies), "{} rows of {}", x.rows(), x.cols());
  const MetRows rows = meet(scratch, Met::kFloat8, x, w, {}, stream);
  MetRows met = rows;
  met.x.data = to.gathered.data;
  met.x.dim[0] = copies;
  met.x.row_stride = x.cols();
  met.chunk_stride = met_scale_stride(copies);
  auto* scales =
      reinterpret_cast<float*>(static_cast<std::byte*>(scratch.data) +
                               whole_lines(met_rows_bytes(Met::kFloat8, x.rows(), x.cols())));
  met.chunk_scales = scales;
  Permutation codes = to;
  codes.gathered = met.x;
  permute(codes, rows.x, routing, stream);
  const ScaleCopies a = {.to = scales,
                         .from = rows.chunk_scales,
                         .to_stride = met.chunk_stride,
                         .from_stride = rows.chunk_stride,
                         .order = routing.order.as<int32_t>(),
                         .start = routing.expert_start.as<int32_t>(),
                         .experts = static_cast<int>(routing.expert_start.elements()) - 1,
                         .top_k = static_cast<int>(routing.expert.cols())};
  const dim3 grid = {static_cast<unsigned>((copies + kThreads - 1) / kThreads),
                     static_cast<unsigned>(x.cols() / kAtomWidth)};
  launch(copy_scales_kernel, {grid, kThreads, 0, stream}, a);
  return met;
}

}  // namespace skiff::cuda

#include "ops/cuda/quant/inputs.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/align.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/pieces.cuh"
#include "ops/cuda/quant/atom_args.cuh"
#include "ops/cuda/quant/round_group.cuh"
#include "ops/cuda/vector.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::cuda {
namespace {

constexpr int kThreads = 256, kGroup = kRoundGroup;
constexpr int kMaxGroups = 1024;    // the most groups of a row
constexpr int kMaxInPlace = 16384;  // elements of a row that is put together in shared memory
constexpr int kRowSlack = 128;      // floats behind a row's scales that tiles of rows may read

enum class Scales : uint8_t { kNone, kToken, kGroups, kStatic };

struct Rows {
  void* to;
  const void* x;
  float* scales;
  const float* input_scale;
  const int32_t* order;
  JobList jobs;
  int64_t to_stride;               // bytes
  int64_t x_stride, scale_stride;  // elements; x_stride 0: one row for all
  int rows, in, columns;           // the columns of x, and those of `to`
  bool stack, integers;
  bool in_place;  // `to` is x: rows are put together in shared memory
  bool pieces;    // rows of x have whole groups, and can be read kHalfElements at a time
  Scales kind;
};

// The expert that row `row` meets.
__device__ int expert_of(const Rows& a, int row) {
  if (a.jobs.expert) return max(0, a.jobs.expert[row]);
  __shared__ int expert;
  if (threadIdx.x == 0) expert = 0;
  __syncthreads();
  const int count = a.jobs.jobs ? *a.jobs.count : 0;
  for (int j = threadIdx.x; j < count; j += kThreads) {
    const Job job = a.jobs.jobs[j];
    if (row >= job.first && row < job.first + job.rows) expert = job.expert;
  }
  __syncthreads();
  return expert;
}

// Element i of a row in the order of the weight's columns.
template <class X>
__device__ float ordered(const Rows& a, const X* x, int i) {
  return to_float(x[a.order ? a.order[i] : i]);
}

template <class X>
__device__ float largest(const Rows& a, const X* x, int begin, int end, int thread, int threads) {
  float most = 0;
  for (int i = begin + thread; i < end; i += threads) most = fmaxf(most, fabsf(ordered(a, x, i)));
  return most;
}

// Leaves the scale of each group of 128 ordered elements in shared memory. Divisions are true ones.
template <class X>
__device__ void find_scales(const Rows& a, const X* x, int row, float* scales) {
  const int groups = (a.in + kGroup - 1) / kGroup, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const float codes = a.integers ? 127.0f : 448.0f;
  if (a.kind == Scales::kGroups) {
    for (int g = warp; g < groups; g += kThreads / 32) {
      const float most = warp_max(largest(a, x, g * kGroup, min(a.in, (g + 1) * kGroup), lane, 32));
      if (lane == 0) scales[g] = __fdiv_rn(fmaxf(most, kLeastMax), codes);
    }
    __syncthreads();
    return;
  }
  float scale = 1;
  if (a.kind == Scales::kStatic) {
    scale = a.input_scale[a.stack ? expert_of(a, row) : 0];
  } else if (a.kind == Scales::kToken) {
    __shared__ float most[kThreads / 32];
    const float mine = warp_max(largest(a, x, 0, a.in, threadIdx.x, kThreads));
    if (lane == 0) most[warp] = mine;
    __syncthreads();
    float all = 0;
    for (int w = 0; w < kThreads / 32; ++w) all = fmaxf(all, most[w]);
    if (all != 0) scale = __fdiv_rn(all, codes);
  }
  for (int g = threadIdx.x; g < groups; g += kThreads) scales[g] = scale;
  __syncthreads();
}

__device__ float integer_of(float quotient) {
  return fminf(fmaxf(rintf(quotient), -128.0f), 127.0f);
}

// A block of threads has a row.
template <class X, Met kAs>
__global__ void __launch_bounds__(kThreads) meet_kernel(Rows a) {
  let_next_start();
  wait_for_previous();
  __shared__ float scales[kMaxGroups];
  const int row = blockIdx.x;
  const X* x = static_cast<const X*>(a.x) + row * a.x_stride;
  find_scales(a, x, row, scales);
  extern __shared__ char staged[];
  char* to = a.in_place ? staged : static_cast<char*>(a.to) + row * a.to_stride;
  for (int i = threadIdx.x; i < a.columns; i += kThreads) {
    const float value = i < a.in ? ordered(a, x, i) : 0.0f;
    const float scale = i < a.in ? scales[i / kGroup] : 1.0f;
    const float quotient = a.kind == Scales::kNone ? value : __fdiv_rn(value, scale);
    if constexpr (kAs == Met::kFloat8) {
      reinterpret_cast<uint8_t*>(to)[i] = float8_of(quotient);
    } else if constexpr (kAs == Met::kHalves) {
      reinterpret_cast<__nv_bfloat16*>(to)[i] =
          __float2bfloat16_rn(a.kind == Scales::kNone ? value : integer_of(quotient));
    } else {
      __nv_fp8_e4m3 code;
      code.__x = float8_of(quotient);
      const float whole = a.integers ? integer_of(quotient) : static_cast<float>(code);
      reinterpret_cast<float*>(to)[i] = a.kind == Scales::kNone ? value : whole * scale;
    }
  }
  if (a.in_place) {
    __syncthreads();
    constexpr int kElement = kAs == Met::kFloat8 ? 1 : 2;
    auto* words = reinterpret_cast<uint2*>(static_cast<char*>(a.to) + row * a.to_stride);
    for (int i = threadIdx.x; i < a.columns * kElement / 8; i += kThreads)
      words[i] = reinterpret_cast<const uint2*>(staged)[i];
  }
  if constexpr (kAs == Met::kFloat8) {
    for (int c = threadIdx.x; c < (a.columns + kGroup - 1) / kGroup; c += kThreads)
      a.scales[c * a.scale_stride + row] = scales[c];
  } else if (kAs == Met::kHalves && threadIdx.x == 0 && a.kind != Scales::kNone) {
    a.scales[row] = scales[0];
  }
}

constexpr int kWarps = kThreads / 32;
constexpr int kHalf = 16, kHalfElements = kGroup / kHalf;  // half a warp has a group

// The elements [first, first + kHalfElements) of a row; zeros beyond its end.
template <class X>
__device__ __forceinline__ void load_elements(float (&value)[kHalfElements], const Rows& a,
                                              const X* x, int first) {
  if (a.pieces) return load<kHalfElements>(value, x + first);
#pragma unroll
  for (int i = 0; i < kHalfElements; ++i)
    value[i] = first + i < a.in ? to_float(x[first + i]) : 0.0f;
}

// Scales::kGroups to e4m3 apart from x, which have nothing in common but their group. Rows are a
// line of groups, of which a block has kEach * 2 * kWarps neighbours.
template <class X, int kEach>
__global__ void __launch_bounds__(kThreads) meet_groups_kernel(Rows a) {
  let_next_start();
  wait_for_previous();
  constexpr unsigned kStep = kThreads / kHalf;
  const Pieces groups(int64_t{blockIdx.x} * (kStep * kEach), a.columns / kGroup);
  const unsigned half = threadIdx.x / kHalf;
  const int at = static_cast<int>(threadIdx.x % kHalf) * kHalfElements;
  float value[kEach][kHalfElements] = {};
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t row = groups.row_of(half + i * kStep);
    if (row < a.rows)
      load_elements(value[i], a, static_cast<const X*>(a.x) + row * a.x_stride,
                    groups.column_of(half + i * kStep) * kGroup + at);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t row = groups.row_of(half + i * kStep);
    const int group = groups.column_of(half + i * kStep);
    const GroupCodes<kHalfElements> as = codes_of_group(value[i]);
    if (row >= a.rows) continue;
    *reinterpret_cast<uint2*>(static_cast<char*>(a.to) + row * a.to_stride + group * kGroup +
                              at) = {as.codes[0], as.codes[1]};
    if (at == 0) a.scales[group * a.scale_stride + row] = as.scale;
  }
}

// Rounds groups as meet_groups_kernel does, in place of bf16 rows: kRowWarps warps of a block have
// a row, up to 2 * kEach groups each, and hold all of its codes in registers before they write the
// first. Rows have a multiple of kHalfElements elements.
template <int kRowWarps, int kEach>
__global__ void __launch_bounds__(kThreads) meet_groups_in_place_kernel(Rows a) {
  let_next_start();
  wait_for_previous();
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int row = static_cast<int>(blockIdx.x) * (kWarps / kRowWarps) + warp / kRowWarps;
  const bool is_there = row < a.rows;
  char* at = static_cast<char*>(a.to) + row * a.to_stride;
  const int first = (warp % kRowWarps * 32 + lane) * kHalfElements;
  constexpr int kStep = kRowWarps * 32 * kHalfElements;
  uint4 words[kEach] = {};
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (is_there && first + i * kStep < a.in)
      words[i] = *reinterpret_cast<const uint4*>(at + 2 * (first + i * kStep));
  uint2 codes[kEach] = {};
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int group = (first + i * kStep) / kGroup;
    const uint4& w = words[i];
    const float value[] = {low_bf16(w.x), high_bf16(w.x), low_bf16(w.y), high_bf16(w.y),
                           low_bf16(w.z), high_bf16(w.z), low_bf16(w.w), high_bf16(w.w)};
    const GroupCodes<kHalfElements> as = codes_of_group(value);
    codes[i] = {as.codes[0], as.codes[1]};
    if (lane % kHalf == 0 && is_there && group * kGroup < a.in)
      a.scales[group * a.scale_stride + row] = as.scale;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (is_there && first + i * kStep < a.in)
      *reinterpret_cast<uint2*>(at + first + i * kStep) = codes[i];
}

// From so many rows on the device is full, so that a thread had better have much on its way.
constexpr int64_t kManyRows = 2048;

// Starts the kernel of the fewest registers that take rows of at most kMost elements.
template <int kRowWarps, int kMost, int kEach = 1>
void start_in_place(const Rows& a, cudaStream_t stream) {
  constexpr int kTaken = kEach * kRowWarps * 2 * kGroup, kRows = kWarps / kRowWarps;
  if constexpr (kTaken < kMost) {
    if (a.in > kTaken) return start_in_place<kRowWarps, kMost, 2 * kEach>(a, stream);
  }
  launch(meet_groups_in_place_kernel<kRowWarps, kEach>,
         {static_cast<unsigned>((a.rows + kRows - 1) / kRows), kThreads, 0, stream}, a);
}

void start_groups_in_place(const Rows& a, cudaStream_t stream) {
  constexpr int kMostOfWarp = 4096;  // elements that a warp holds without spilling registers
  if (a.rows >= kManyRows && a.in <= kMostOfWarp)
    start_in_place<1, kMostOfWarp>(a, stream);
  else
    start_in_place<kWarps, kMaxInPlace>(a, stream);
}

template <class X>
void start_groups(const Rows& a, cudaStream_t stream) {
  constexpr int kEach = 4;
  const bool many = a.rows >= kManyRows;
  const int64_t groups = int64_t{a.rows} * (a.columns / kGroup),
                of_block = kThreads / kHalf * (many ? kEach : 1);
  launch(many ? meet_groups_kernel<X, kEach> : meet_groups_kernel<X, 1>,
         {static_cast<unsigned>((groups + of_block - 1) / of_block), kThreads, 0, stream}, a);
}

template <class X>
void start(Met as, const Rows& a, cudaStream_t stream) {
  if (as == Met::kFloat8 && a.kind == Scales::kGroups && !a.order) {
    return a.in_place ? start_groups_in_place(a, stream) : start_groups<X>(a, stream);
  }
  const size_t staged = a.in_place ? size_t{2} * static_cast<size_t>(a.columns) : 0;
  const Launch how = {static_cast<unsigned>(a.rows), kThreads, staged, stream};
  switch (as) {
    case Met::kFloats:
      return launch(meet_kernel<X, Met::kFloats>, how, a);
    case Met::kHalves:
      return launch(meet_kernel<X, Met::kHalves>, how, a);
    case Met::kFloat8:
      return launch(meet_kernel<X, Met::kFloat8>, how, a);
  }
}

Scales scales_of(const WeightFormat& format) {
  if (!format.input) return Scales::kNone;
  switch (format.input->scales) {
    case InputFormat::kToken:
      return Scales::kToken;
    case InputFormat::kGroups:
      return Scales::kGroups;
    case InputFormat::kStatic:
      break;
  }
  return Scales::kStatic;
}

constexpr int64_t padded(int64_t in) { return (in + kGroup - 1) / kGroup * kGroup; }

DType dtype_of(Met as) {
  if (as == Met::kFloats) return DType::kF32;
  return as == Met::kHalves ? DType::kBF16 : DType::kF8E4M3;
}

}  // namespace

Met met_by(const Linear& w) {
  const std::optional<AtomFormat> format = atom_format(w.format);
  return format && format->codes == Codes::kFloat8Held ? Met::kFloat8 : Met::kHalves;
}

int64_t met_scale_stride(int64_t rows) {
  return (rows + kRowSlack + atoms::kScaleSlack + 3) / 4 * 4;
}

size_t met_scale_bytes(int64_t rows, int64_t in) {
  const auto scales = static_cast<size_t>(padded(in) / kGroup * met_scale_stride(rows));
  return (scales * sizeof(float) + 255) / 256 * 256;
}

size_t met_rows_bytes(Met as, int64_t rows, int64_t in) {
  return byte_size(dtype_of(as), rows * padded(in)) + met_scale_bytes(rows, in);
}

int64_t met_rows_that_fit(Met as, size_t bytes, int64_t in) {
  // `each` is what 64 rows more take, with 256 bytes for rounding up.
  const size_t fixed = met_rows_bytes(as, 0, in), each = met_rows_bytes(as, 64, in) - fixed + 256;
  SKIFF_CHECK(bytes > fixed, "{} bytes of scratch", bytes);
  return static_cast<int64_t>((bytes - fixed) / each) * 64;
}

std::optional<MetRows> groups_in_place(const InputScratch& scratch, const Tensor& x,
                                       const Linear& w) {
  const int64_t rows = x.rows(), in = x.cols();
  if (met_by(w) != Met::kFloat8 || scales_of(w.format) != Scales::kGroups || w.order ||
      x.dtype != DType::kBF16 || met_scale_bytes(rows, in) > scratch.bytes)
    return {};
  MetRows met = {.x = x,
                 .chunk_scales = static_cast<const float*>(scratch.data),
                 .chunk_stride = met_scale_stride(rows)};
  met.x.dtype = DType::kF8E4M3;
  met.x.dim = {rows, in, 1, 1};
  met.x.row_stride = 2 * x.row_stride;
  return met;
}

MetRows meet(const InputScratch& scratch, Met as, const Tensor& x, const Linear& w,
             const JobList& jobs, cudaStream_t stream, bool tight) {
  const Scales kind = scales_of(w.format);
  const bool apart = x.rows() == 1 && jobs.expert && kind == Scales::kStatic && w.experts > 0;
  const bool in_place = jobs.jobs && as != Met::kFloats;
  const int64_t rows = apart ? jobs.capacity : x.rows(), in = x.cols();
  const int64_t columns = as == Met::kFloat8 && !in_place ? padded(in) : in;
  const size_t needed = in_place ? met_scale_bytes(rows, in) : met_rows_bytes(as, rows, in);
  SKIFF_CHECK(padded(in) <= int64_t{kMaxGroups} * kGroup && (!in_place || in <= kMaxInPlace),
              "rows of {} activations to round", in);
  SKIFF_CHECK(needed <= scratch.bytes, "{} rows of {} activations to round", rows, in);
  SKIFF_CHECK(!in_place || (x.dtype == DType::kBF16 && in % 8 == 0));
  MetRows met = {.x = x};
  met.x.dtype = dtype_of(as);
  met.x.dim = {rows, columns, 1, 1};
  met.x.row_stride = in_place ? x.row_stride * 2 / static_cast<int64_t>(bytes(met.x.dtype))
                              : (columns + 7) / 8 * 8;
  auto* scales = static_cast<float*>(scratch.data);
  if (!in_place) met.x.data = static_cast<std::byte*>(scratch.data) + met_scale_bytes(rows, in);
  met.chunk_stride = tight ? rows : met_scale_stride(rows);
  if (as == Met::kFloat8) met.chunk_scales = scales;
  if (as == Met::kHalves && kind != Scales::kNone) met.row_scales = scales;
  const Rows a = {.to = met.x.data,
                  .x = x.data,
                  .scales = scales,
                  .input_scale = kind == Scales::kStatic ? w.input_scale.as<float>() : nullptr,
                  .order = w.order ? w.order.as<int32_t>() : nullptr,
                  .jobs = jobs,
                  .to_stride = met.x.row_stride * static_cast<int64_t>(bytes(met.x.dtype)),
                  .x_stride = apart ? 0 : x.row_stride,
                  .scale_stride = met.chunk_stride,
                  .rows = static_cast<int>(rows),
                  .in = static_cast<int>(in),
                  .columns = static_cast<int>(columns),
                  .stack = w.experts > 0,
                  .integers = w.format.input && w.format.input->dtype == DType::kI8,
                  .in_place = in_place,
                  .pieces = in % kGroup == 0 && is_aligned(x, 16),
                  .kind = kind};
  if (rows == 0) return met;
  if (x.dtype == DType::kF32)
    start<float>(as, a, stream);
  else
    start<__nv_bfloat16>(as, a, stream);
  return met;
}

}  // namespace skiff::cuda

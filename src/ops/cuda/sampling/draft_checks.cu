#include "ops/cuda/launch.cuh"
#include "ops/cuda/sampling/draw.cuh"
#include "ops/cuda/sampling/kernels.h"
#include "ops/cuda/sampling/weight.cuh"

namespace skiff::cuda {
namespace {

// Weights are summed in fixed point, so that sums do not depend on the order of additions.
constexpr double kUnit = 0x1p44;

// A row whose block reads it from device memory as often as it needs it: these kernels run where
// drafts are sampled only, and one block for each row is enough for them.
struct Row {
  const float* x;
  int n;
  float best;
  double temperature;
  float least;  // min_p drops logits below it

  __device__ bool keeps(float v) const { return v > kNever && v >= least; }
  __device__ double weight(float v) const {
    return exp((static_cast<double>(v) - static_cast<double>(best)) / temperature);
  }
  __device__ uint64_t units(float v) const { return static_cast<uint64_t>(weight(v) * kUnit); }
  // Calls f(id, logit) for the tokens of this thread that min_p keeps.
  template <class F>
  __device__ void each(F f) const {
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads)
      if (const float v = sane(x[i]); keeps(v)) f(i, v);
  }
};

// Returns the rank, as ranked() makes it, of the token at which the weights of all tokens from the
// best one on reach `goal`, or 0 where all together do not. Radix selection, a byte at a time.
template <class W>
__device__ uint64_t rank_at(const Row& row, uint64_t goal, W weight) {
  __shared__ unsigned long long bins[256];
  __shared__ uint64_t prefix, ahead;
  if (threadIdx.x == 0) prefix = ahead = 0;
  for (int shift = 56; shift >= 0; shift -= 8) {
    if (threadIdx.x < 256) bins[threadIdx.x] = 0;
    __syncthreads();
    const uint64_t known = shift == 56 ? 0 : ~uint64_t{0} << (shift + 8), chosen = prefix;
    row.each([&](int id, float v) {
      const uint64_t rank = ranked(v, id);
      if ((rank & known) == chosen)
        atomicAdd(&bins[rank >> shift & 255], static_cast<unsigned long long>(weight(v)));
    });
    __syncthreads();
    if (threadIdx.x == 0) {
      int digit = 255;
      for (; digit > 0 && ahead + bins[digit] < goal; --digit) ahead += bins[digit];
      prefix |= static_cast<uint64_t>(digit) << shift;
    }
    __syncthreads();
  }
  return prefix;
}

// Returns the rank of the last token that is kept; 0 keeps all.
__device__ uint64_t last_kept(const Row& row, const Draw& draw) {
  uint64_t last = 0;
  if (draw.top_k > 0 && draw.top_k < row.n)
    last = rank_at(row, static_cast<uint64_t>(draw.top_k), [](float) { return uint64_t{1}; });
  if (draw.top_p >= 1) return last;
  uint64_t units = 0;
  row.each([&](int id, float v) { units += ranked(v, id) >= last ? row.units(v) : 0; });
  const double goal = static_cast<double>(draw.top_p) * static_cast<double>(sum(units));
  return max(
      last, rank_at(row, static_cast<uint64_t>(ceil(goal)), [&](float v) { return row.units(v); }));
}

// The best token alone.
__device__ void write_certain(float* x, int n, float best) {
  int first = n;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads)
    if (sane(x[i]) == best) first = min(first, i);
  first = reduce(first, [](int a, int b) { return min(a, b); });
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) x[i] = i == first ? 0 : kNever;
}

__global__ void __launch_bounds__(kThreads) draw_logprobs_kernel(LogitArgs logits, DrawArgs args) {
  wait_for_previous();
  let_next_start();
  const auto r = static_cast<int64_t>(blockIdx.x);
  float* x = logits.data + r * logits.stride;
  const Draw draw(args, r);
  float best = kNever;
  for (int i = static_cast<int>(threadIdx.x); i < logits.vocab; i += kThreads)
    best = fmaxf(best, sane(x[i]));
  best = reduce(best, [](float a, float b) { return fmaxf(a, b); });
  if (draw.greedy(best)) return write_certain(x, logits.vocab, best);
  const Row row{x, logits.vocab, best, static_cast<double>(draw.temperature),
                least_kept(best, kept_span(draw.temperature, draw.min_p))};
  const uint64_t last = last_kept(row, draw);
  uint64_t units = 0;
  row.each([&](int id, float v) { units += ranked(v, id) >= last ? row.units(v) : 0; });
  const double norm = log(static_cast<double>(sum(units)) / kUnit);
  for (int i = static_cast<int>(threadIdx.x); i < logits.vocab; i += kThreads) {
    const float v = sane(x[i]);
    const bool kept = row.keeps(v) && ranked(v, i) >= last;
    const double d = (static_cast<double>(v) - static_cast<double>(best)) / row.temperature;
    x[i] = kept ? static_cast<float>(d - norm) : kNever;
  }
}

// There is one block for each check. Its threads take runs of tokens, in their order.
__global__ void __launch_bounds__(kThreads)
    check_drafts_kernel(int32_t* ids, LogitArgs target, LogitArgs draft, CheckArgs checks) {
  wait_for_previous();
  let_next_start();
  const auto c = static_cast<int>(blockIdx.x);
  const int row = checks.row[c], token = checks.token[c];
  const float* p = target.data + row * target.stride;
  const float* q = draft.data + checks.draft_row[c] * draft.stride;
  const auto chance = [](float v) { return exp(static_cast<double>(v)); };
  if (static_cast<double>(checks.keep[c]) * chance(q[token]) < chance(p[token])) {
    if (threadIdx.x == 0) ids[row] = token;
    return;
  }
  const int run = (target.vocab + kThreads - 1) / kThreads;
  const int begin = min(target.vocab, run * static_cast<int>(threadIdx.x));
  const int end = min(target.vocab, begin + run);
  const auto rest = [&](int i) { return fmax(chance(p[i]) - chance(q[i]), 0.0); };
  double mine = 0;
  for (int i = begin; i < end; ++i) mine += rest(i);
  const double before = sum_before(mine);
  const double goal = static_cast<double>(checks.instead[c]) * sum(mine);
  if (!(before <= goal && goal < before + mine)) return;
  double reached = 0;
  int drawn = -1;
  for (int i = begin; i < end && !(before + reached > goal); ++i) {
    const double part = rest(i);
    reached += part;
    if (part > 0) drawn = i;
  }
  ids[row] = drawn;
}

}  // namespace

void start_draw_logprobs(const LogitArgs& logits, const DrawArgs& draw, cudaStream_t stream) {
  launch(
      draw_logprobs_kernel,
      {.grid = dim3(static_cast<unsigned>(logits.rows)), .block = dim3(kThreads), .stream = stream},
      logits, draw);
}

void start_checks(int32_t* ids, const LogitArgs& target, const LogitArgs& draft,
                  const CheckArgs& checks, cudaStream_t stream) {
  launch(check_drafts_kernel,
         {.grid = dim3(static_cast<unsigned>(checks.count)),
          .block = dim3(kThreads),
          .stream = stream},
         ids, target, draft, checks);
}

}  // namespace skiff::cuda

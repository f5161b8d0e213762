#include <algorithm>
#include <type_traits>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/moe/choice.cuh"
#include "ops/cuda/moe/top_k.cuh"

namespace skiff::cuda {
namespace {

// Up to so many tokens a block for each (choice_kernel) is faster than a warp for each.
constexpr int kBlockTokens = 256;
constexpr int kWarps = 4;  // a block of top_k_kernel has so many

template <int kSlots>
__global__ void __launch_bounds__(kWarps * 32) top_k_kernel(const __grid_constant__ RouteArgs c) {
  let_next_start();
  TopK<kSlots> top_k(c);
  if (!c.beside) wait_for_previous();
  const int t = blockIdx.x * kWarps + threadIdx.x / 32;
  const int64_t first = int64_t{t} * (c.top_k + c.always);
  if (t < c.tokens) top_k.choose(t, c.expert + first, c.weight + first);
  if (c.beside) wait_for_previous();
}

// A block has a token. `order` and `start` are null where there are others: then the next kernel
// starts at once. The experts of a single token take multiprocessors and can do nothing before they
// are known, while a shared expert may begin in another lane.
__global__ void __launch_bounds__(kMaxExperts)
    choice_kernel(const __grid_constant__ RouteArgs c, int32_t* order, int32_t* start) {
  if (order == nullptr) let_next_start();
  __shared__ ChoiceShared shared;
  Choice choice(c, shared);
  if (!c.beside) wait_for_previous();
  if (order != nullptr) let_next_start();
  const int t = static_cast<int>(blockIdx.x);
  const int64_t first = int64_t{t} * (c.top_k + c.always);
  choice.choose(t, c.expert + first, c.weight + first);
  if (order != nullptr) choice.sort(order, start);
  if (c.beside) wait_for_previous();
}

struct Sums {
  int less, equal;
};

// Returns `less` summed over all threads and `equal` summed over the threads before this one;
// *total gets both sums over all threads.
__device__ Sums block_scan(Sums v, Sums* shared, Sums* total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int before = warp_prefix_sum(v.equal, lane), less = warp_sum(v.less);
  if (lane == 31) shared[warp] = {less, before};
  __syncthreads();
  *total = {0, 0};
  int earlier = 0;
  for (int w = 0; w < warps; ++w) {
    if (w < warp) earlier += shared[w].equal;
    total->less += shared[w].less;
    total->equal += shared[w].equal;
  }
  return {total->less, earlier + before - v.equal};
}

// Calls f(index, expert) for copies [begin, end); begin is a multiple of 4. Of many copies the next
// ones are loaded together, before f stores anything.
template <class F>
__device__ void for_each_copy(const int32_t* expert, int begin, int end, F f) {
  constexpr int kAtOnce = 4;
  int i = begin;
  for (; i + 4 * kAtOnce <= end; i += 4 * kAtOnce) {
    int4 four[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) four[j] = *reinterpret_cast<const int4*>(expert + i + 4 * j);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int at = i + 4 * j;
      f(at, four[j].x), f(at + 1, four[j].y), f(at + 2, four[j].z), f(at + 3, four[j].w);
    }
  }
  for (; i + 4 <= end; i += 4) {
    const int4 four = *reinterpret_cast<const int4*>(expert + i);
    f(i, four.x), f(i + 1, four.y), f(i + 2, four.z), f(i + 3, four.w);
  }
  for (; i < end; ++i) f(i, expert[i]);
}

// A stable counting sort: block e finds the copies of expert e. Each thread scans its own run of
// `run` copies, so copies keep their order within an expert; the expert starts at the number of
// copies of lower experts.
__global__ void sort_kernel(int32_t* order, int32_t* start, const int32_t* expert, int copies,
                            int run) {
  let_next_start();
  wait_for_previous();
  __shared__ Sums shared[32];
  const unsigned e = blockIdx.x;
  const int begin = min(copies, static_cast<int>(threadIdx.x) * run),
            end = min(copies, begin + run);
  Sums mine = {0, 0}, total;
  for_each_copy(expert, begin, end, [&](int, int32_t id) {
    mine.less += static_cast<unsigned>(id) < e;  // -1 is greater than every expert
    mine.equal += static_cast<unsigned>(id) == e;
  });
  const Sums before = block_scan(mine, shared, &total);
  if (threadIdx.x == 0) {
    start[e] = total.less;
    if (e + 1 == gridDim.x) start[e + 1] = total.less + total.equal;
  }
  if (mine.equal == 0) return;
  int at = before.less + before.equal;
  for_each_copy(expert, begin, end, [&](int i, int32_t id) {
    if (static_cast<unsigned>(id) == e) order[at++] = i;
  });
}

// Calls f with the number of experts per lane that the kernel is compiled for.
template <class F>
void for_experts(int experts, F f) {
  if (experts <= 64)
    f(std::integral_constant<int, 2>());
  else if (experts <= 128)
    f(std::integral_constant<int, 4>());
  else if (experts <= 256)
    f(std::integral_constant<int, 8>());
  else
    f(std::integral_constant<int, kMaxExperts / 32>());
}

}  // namespace

void sort_copies(const Routing& routing, cudaStream_t stream) {
  const auto copies = static_cast<int>(routing.expert.elements());
  const auto experts = static_cast<int>(routing.expert_start.elements()) - 1;
  const int threads = copies <= 256 ? 128 : copies <= 4096 ? 256 : 1024;
  launch(sort_kernel, {experts, threads, 0, stream}, routing.order.as<int32_t>(),
         routing.expert_start.as<int32_t>(), routing.expert.as<int32_t>(), copies,
         (copies + 4 * threads - 1) / (4 * threads) * 4);
}

void choose(const Routing& routing, Tensor logits, Tensor bias, const Router& router,
            const int32_t* live, cudaStream_t stream, bool beside) {
  SKIFF_CHECK(
      router.here() >= 1 && router.always >= 0 && router.experts + router.always <= kMaxExperts,
      "{} + {} experts; at most {}", router.experts, router.always, kMaxExperts);
  SKIFF_CHECK(router.top_k >= 1 && router.top_k <= router.experts, "top_k {} of {} experts",
              router.top_k, router.experts);
  SKIFF_CHECK_EQ(logits.cols(), router.experts);
  SKIFF_CHECK(routes(router), "{} groups for {} experts; at most {} equal ones",
              router.groups.count, router.experts, kMaxGroups);
  const int tokens = static_cast<int>(logits.rows());
  const RouteArgs c = {.expert = routing.expert.as<int32_t>(),
                       .weight = routing.weight.as<float>(),
                       .logits = logits.as<float>(),
                       .bias = bias ? bias.as<float>() : nullptr,
                       .logits_stride = logits.row_stride,
                       .tokens = tokens,
                       .experts = router.experts,
                       .top_k = router.top_k,
                       .always = router.always,
                       .before = router.before,
                       .here = router.here(),
                       .renorm = router.renorm,
                       .beside = beside,
                       .live = live,
                       .sigmoid = router.score == Router::kSigmoid,
                       .groups = router.groups.count,
                       .keep_groups = router.groups.keep,
                       .group_size = router.experts / router.groups.count,
                       .two_best = router.groups.judge == ExpertGroups::kTwoBest,
                       .factor = router.factor};
  if (tokens == 0) return;
  if (tokens <= kBlockTokens) {
    const bool sorts = tokens == 1;
    launch(choice_kernel, {tokens, (router.experts + 31) / 32 * 32, 0, stream}, c,
           sorts ? routing.order.as<int32_t>() : nullptr,
           sorts ? routing.expert_start.as<int32_t>() : nullptr);
    return;
  }
  for_experts(router.experts, [&](auto slots) {
    launch(top_k_kernel<slots>, {(tokens + kWarps - 1) / kWarps, kWarps * 32, 0, stream}, c);
  });
}

void route(const Routing& routing, Tensor logits, Tensor bias, const Router& router,
           const int32_t* live, cudaStream_t stream, bool beside) {
  choose(routing, logits, bias, router, live, stream, beside);
  if (logits.rows() != 1) sort_copies(routing, stream);
}

}  // namespace skiff::cuda

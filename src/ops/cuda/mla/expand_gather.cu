// Gathers the contexts of a pass from their pages, one warp for each position.
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/mla/expand_kernels.h"
#include "ops/latent_row.h"

namespace skiff::cuda {
namespace {

constexpr int kWarps = 8;

// Returns the cached vector of a position of the pass; null past the context.
__device__ const std::byte* vector_at(const ExpandGatherArgs& p, int position) {
  int s = 0;
  while (s + 1 < p.spans.count && p.spans.span[s + 1].at <= position) ++s;
  const ExpandSpan& span = p.spans.span[s];
  const int t = position - span.at;
  if (t >= span.kv_len) return nullptr;
  const int64_t page = p.rows.pages[span.seq * p.rows.pages_stride + t / p.cache.page_size];
  return p.cache.data + page * p.cache.page_bytes +
         int64_t{t % p.cache.page_size} * p.cache.vector_bytes;
}

// Two codes of e4m3 become two bf16. The scale is a power of two, so nothing is rounded.
__device__ uint32_t widened(uint32_t codes, float scale) {
  const __half2_raw raw =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes & 0xffff), __NV_E4M3);
  const float2 x = __half22float2(__half2(raw));
  return pack_bf16(x.x * scale, x.y * scale);
}

// Each lane copies 16 elements of the latent.
__device__ void copy_latent(const ExpandGatherArgs& p, const std::byte* from, int lane, uint4* to) {
  if (!from) {
    to[2 * lane] = to[2 * lane + 1] = uint4{};
  } else if (p.cache.element == LatentElement::kBF16) {
    const auto* x = reinterpret_cast<const uint4*>(from);
    to[lane] = x[lane], to[lane + 32] = x[lane + 32];
  } else {
    const uint4 x = reinterpret_cast<const uint4*>(from)[lane];
    const float scale = *reinterpret_cast<const float*>(from + p.cache.scales_at +
                                                        lane * 16 / kLatentGroup * sizeof(float));
    to[2 * lane] = {widened(x.x, scale), widened(x.x >> 16, scale), widened(x.y, scale),
                    widened(x.y >> 16, scale)};
    to[2 * lane + 1] = {widened(x.z, scale), widened(x.z >> 16, scale), widened(x.w, scale),
                        widened(x.w >> 16, scale)};
  }
}

__global__ void __launch_bounds__(32 * kWarps)
    expand_gather_kernel(const __grid_constant__ ExpandGatherArgs p) {
  wait_for_previous();
  let_next_start();
  if (blockIdx.x == 0 && threadIdx.x == 0) *p.next = 0;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int i = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (i >= p.count) return;
  const std::byte* from = vector_at(p, p.first + i);
  copy_latent(
      p, from, lane,
      reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(p.latents) + int64_t{i} * kExpandRank));
  if (!p.rope || lane >= kExpandRope / 8) return;
  auto* rope = reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(p.rope) +
                                        int64_t{p.first + i} * kExpandRope);
  const int rope_at = p.cache.element == LatentElement::kBF16 ? kExpandRank * 2 : p.cache.rope_at;
  rope[lane] = from ? reinterpret_cast<const uint4*>(from + rope_at)[lane] : uint4{};
}

}  // namespace

void start_expand_gather(const ExpandGatherArgs& args, cudaStream_t stream) {
  launch(expand_gather_kernel,
         {.grid = dim3(static_cast<unsigned>((args.count + kWarps - 1) / kWarps)),
          .block = dim3(32 * kWarps),
          .stream = stream},
         args);
}

}  // namespace skiff::cuda

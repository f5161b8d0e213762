// ops/cuda/mla/attend_convert.cuh -- the warpgroup of latent attention over 8-bit rows that turns
// them into the bf16 tiles that the others multiply. Rows are copied as they lie in the cache, a
// part of a tile at a time; each warp then converts the columns of one scale, which are two panels.
// Scales are powers of two, so that the products are exact.
#pragma once
#include "ops/cuda/attention/quantized.cuh"
#include "ops/cuda/mla/attend_copy.cuh"
#include "ops/cuda/mla/attend_scores.cuh"

namespace skiff::cuda::latent {

// Starts to copy a part of the cursor's tile; after the last part the cursor moves on.
template <class Tiles>
__device__ __forceinline__ void load_part(const LatentPlanArgs& p, Shared<Tiles>& shared,
                                          int part) {
  Cursor& c = shared.cursor[0];
  const LatentCache& cache = p.args.cache;
  constexpr int kBytes = kRawRows * kRowBytes;
  const uint32_t full = shared_address(&shared.raw.full[part]);
  barrier_expect(full, kBytes);
  asm volatile("cp.async.wait_all;" ::: "memory");
  const int page = *static_cast<volatile int*>(&c.page);
  const int in_page = c.tile * kLatentTile % cache.page_size + part * kRawRows;
  copy_bytes(shared_address(shared.raw.rows[part]),
             cache.data + page * cache.page_bytes + in_page * kRowBytes, kBytes, full,
             Keep::kNormal);
  if (part + 1 < kRawStages || ++c.at >= c.end) return;
  if (++c.tile == c.tiles) {
    ++c.item;
    enter(p, c);
  }
  look_up(p, c);
}

// Copies the first tile, run by one thread: before griddepcontrol.wait where earlier steps stored
// it.
template <class Tiles>
__device__ inline void first_parts(const LatentPlanArgs& p, Shared<Tiles>& shared) {
  Cursor& c = shared.cursor[0];
  begin_loads(p, c);
  if (c.at >= c.end) return;
  if (!is_old(c)) wait_for_previous();
  for (int part = 0; part < kRawStages; ++part) load_part(p, shared, part);
}

// Four e4m3 codes as two pairs of bf16; `scale` lacks nothing that multiplies both of a pair.
__device__ __forceinline__ uint2 widen(uint32_t codes, PairScale scale) {
  return {odd_bytes<KvElement::kE4M3>(__byte_perm(codes, 0, 0x1404), scale),
          odd_bytes<KvElement::kE4M3>(__byte_perm(codes, 0, 0x3424), scale)};
}

// Converts a warp's columns of a part of a tile. Eight lanes take eight rows, so that neither their
// loads nor their stores meet in a bank; `to` is where the part's first row lies in the first of
// the two panels.
__device__ __forceinline__ void convert_part(const uint8_t* rows, int warp, uint8_t* to) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = lane % 8, chunk = lane / 8;
  const uint8_t* from = rows + row * kRowBytes;
  uint4 codes[2][2];
  PairScale scale[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint8_t* mine = from + half * 8 * kRowBytes;
    const uint32_t bits = *reinterpret_cast<const uint32_t*>(mine + kScalesAt + warp * 4);
    scale[half] = pair_scale<KvElement::kE4M3>(bits >> 16, bits >> 16);
#pragma unroll
    for (int panel = 0; panel < 2; ++panel)
      codes[half][panel] =
          *reinterpret_cast<const uint4*>(mine + warp * 128 + panel * 64 + chunk * 16);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int panel = 0; panel < 2; ++panel) {
      const uint4 x = codes[half][panel];
      const uint2 a = widen(x.x, scale[half]), b = widen(x.y, scale[half]);
      const uint2 c = widen(x.z, scale[half]), d = widen(x.w, scale[half]);
      uint8_t* at = to + panel * kPanelBytes + half * 8 * 128;
      *reinterpret_cast<uint4*>(at + swizzled(row, 2 * chunk)) = {a.x, a.y, b.x, b.y};
      *reinterpret_cast<uint4*>(at + swizzled(row, 2 * chunk + 1)) = {c.x, c.y, d.x, d.y};
    }
  }
}

// Moves half of the rotated keys of a part, which are bf16 already.
__device__ __forceinline__ void move_keys(const uint8_t* rows, int half_of_keys, uint8_t* to) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = lane % 8;
  const int chunk = half_of_keys * 4 + lane / 8;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const auto x =
        *reinterpret_cast<const uint4*>(rows + (half * 8 + row) * kRowBytes + kRopeAt + chunk * 16);
    *reinterpret_cast<uint4*>(to + half * 8 * 128 + swizzled(row, chunk)) = x;
  }
}

// Converts the block's tiles. Two warps fill the left half, two the right one.
template <class Tiles>
__device__ __forceinline__ void convert_tiles(const LatentPlanArgs& p, Shared<Tiles>& shared,
                                              int tiles) {
  static_assert(Tiles::kRightStages == kLeftStages);
  const int warp = static_cast<int>(threadIdx.x) / 32 % kWarpsOfGroup;
  const bool left = warp < 2;
  Ring<kLeftStages> ring;
  for (int tile = 0; tile < tiles; ++tile, ring.advance()) {
    if (tile >= kLeftStages)
      barrier_wait(
          shared_address(left ? &shared.left_done[ring.stage] : &shared.all_done[ring.stage]),
          ring.phase ^ 1);
    RightHalf& right = shared.right[ring.stage];
    uint8_t* panels =
        left ? shared.left[ring.stage].panels[2 * warp] : right.panels[2 * (warp - 2)];
#pragma unroll 1
    for (int part = 0; part < kRawStages; ++part) {
      const uint32_t done = shared_address(&shared.raw.done[part]);
      barrier_wait(shared_address(&shared.raw.full[part]), tile % 2);
      const uint8_t* rows = shared.raw.rows[part];
      convert_part(rows, warp, panels + part * kRawRows * 128);
      if (!left) move_keys(rows, warp - 2, right.rope + part * kRawRows * 128);
      __syncwarp();
      if (arrives<Tiles>()) barrier_arrive(done);
      if (warp == 0) {
        if (elected() && shared.cursor[0].at < shared.cursor[0].end) {
          barrier_wait(done, tile % 2);
          load_part(p, shared, part);
        }
        __syncwarp();
      }
    }
    fence_async();
    __syncwarp();
    if (arrives<Tiles>())
      barrier_arrive(
          shared_address(left ? &shared.left_full[ring.stage] : &shared.right_full[ring.stage]));
  }
}

}  // namespace skiff::cuda::latent

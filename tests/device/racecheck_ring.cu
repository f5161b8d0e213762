// What compute-sanitizer's racecheck says of the smallest ring of bulk copies: one thread copies
// items of 4 KB into two places in turns, two warps add them up and release the places. Two ways:
//   warp   after __syncwarp(), one lane of each warp arrives at the barrier, as in ops/cuda/one_row
//   lanes  every lane arrives for itself
// Both order each read before the copy that overwrites it. racecheck (CUDA 13.0, H200) reports races of
// the first and none of the second: it does not follow reads of a warp through __syncwarp() to the
// arrival of one lane, and what it says of ops/cuda/one_row is that.
//   nvcc -arch=sm_90a -std=c++20 -O2 -I ../../src racecheck_ring.cu -o ring
//   compute-sanitizer --tool racecheck ./ring warp; compute-sanitizer --tool racecheck ./ring lanes
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "ops/cuda/hopper/barrier.cuh"

constexpr int kFloats = 1024, kBytes = kFloats * 4, kReaders = 64;

using namespace skiff::cuda;

__device__ void copy(uint32_t to, const float* from, uint32_t barrier) {
  barrier_expect(barrier, kBytes);
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(__cvta_generic_to_global(from)), "n"(kBytes), "r"(barrier)
      : "memory");
}

template <bool kEveryLane>
__global__ void ring(const float* in, float* sums, int items) {
  __shared__ __align__(128) float place[2][kFloats];
  __shared__ uint64_t full[2], empty[2];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    for (int i = 0; i < 2; ++i) {
      barrier_init(shared_address(&full[i]), 1);
      barrier_init(shared_address(&empty[i]), kEveryLane ? kReaders : kReaders / 32);
    }
    barrier_init_done();
  }
  __syncthreads();
  if (thread >= kReaders) {
    for (int i = 0; i < items && thread == kReaders; ++i) {
      if (i >= 2) barrier_wait(shared_address(&empty[i % 2]), (i / 2 - 1) % 2);
      copy(shared_address(place[i % 2]), in + i * kFloats, shared_address(&full[i % 2]));
    }
    return;
  }
  float sum = 0;
  for (int i = 0; i < items; ++i) {
    barrier_wait(shared_address(&full[i % 2]), i / 2 % 2);
    for (int k = thread; k < kFloats; k += kReaders) sum += place[i % 2][k];
    if (!kEveryLane) __syncwarp();
    if (kEveryLane || thread % 32 == 0) barrier_arrive(shared_address(&empty[i % 2]));
  }
  sums[thread] = sum;
}

int main(int argc, char** argv) {
  const bool lanes = argc > 1 && std::strcmp(argv[1], "lanes") == 0;
  constexpr int kItems = 7;
  const std::vector<float> ones(kItems * kFloats, 1);
  std::vector<float> sums(kReaders);
  float *in = nullptr, *out = nullptr;
  cudaMalloc(&in, ones.size() * 4);
  cudaMalloc(&out, sums.size() * 4);
  cudaMemcpy(in, ones.data(), ones.size() * 4, cudaMemcpyHostToDevice);
  if (lanes)
    ring<true><<<1, kReaders + 32>>>(in, out, kItems);
  else
    ring<false><<<1, kReaders + 32>>>(in, out, kItems);
  cudaMemcpy(sums.data(), out, sums.size() * 4, cudaMemcpyDeviceToHost);
  float all = 0;
  for (float s : sums) all += s;
  std::printf("%s: %s: %.0f, expected %d\n", lanes ? "lanes" : "warp",
              cudaGetErrorString(cudaGetLastError()), all, kItems * kFloats);
  return all != kItems * kFloats;
}

// comm/devices/cluster_sum.cuh -- a sum over the threads of a cluster of blocks, by messages.
//
// The barrier of a cluster makes all earlier writes of a thread visible before it arrives there, so
// it waits until what was sent to other ranks has come to them. Here a warp's sum goes to every
// block together with a signal to the barrier in its shared memory (st.async), and nothing else is
// waited for. PTX ISA, "st.async" and "mbarrier".
#pragma once
#include "ops/cuda/hopper/barrier.cuh"
#include "ops/cuda/hopper/cluster.cuh"
#include "ops/cuda/warp.cuh"

namespace skiff::devices {

// A row is summed up in slices, by the threads of one block or by a cluster of blocks, one for
// each: the order of additions is the same.
constexpr int kSlices = 4;
constexpr int kMaxSliceThreads = 256;
constexpr int kMaxWarps = kSlices * kMaxSliceThreads / 32;

// The sum over slices, in their order, of each slice's sum over its warps.
__device__ __forceinline__ float sum_warps(const float* partial, int warps) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float sum = 0;
#pragma unroll
  for (int s = 0; s < kSlices; ++s)
    sum += cuda::warp_sum(lane < warps ? partial[s * warps + lane] : 0);
  return sum;
}

// All threads of a cluster of kSlices blocks construct it, begin(), and then add up as often as
// they like, together. Calls take turns with two places, because a block may be one call ahead of
// others.
class ClusterSum {
 public:
  __device__ ClusterSum() : shared_(memory()) {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
      for (auto& barrier : shared_.arrived) cuda::barrier_init(cuda::shared_address(&barrier), 1);
      cuda::barrier_init_done();
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
  }
  // Waits until all blocks run.
  __device__ void begin() const { cuda::cluster_wait(); }

  // Returns the sum over slices of each slice's sum of x over its threads.
  __device__ float operator()(float x) {
#if __CUDA_ARCH__ >= 900
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int warps = static_cast<int>(blockDim.x) / 32, place = calls_ % 2;
    const uint32_t arrived = cuda::shared_address(&shared_.arrived[place]);
    x = cuda::warp_sum(x);
    if (threadIdx.x == 0)
      cuda::barrier_expect(arrived, static_cast<uint32_t>(kSlices * warps) * sizeof(float));
    float* partial = shared_.partial[place];
    if (lane < kSlices)
      tell(lane, cuda::shared_address(partial + cuda::block_rank() * warps + warp), arrived, x);
    wait(arrived, static_cast<uint32_t>(calls_ / 2 % 2));
    ++calls_;
    return sum_warps(partial, warps);
#else
    return x;
#endif
  }

 private:
  struct Shared {
    float partial[2][kMaxWarps];
    uint64_t arrived[2];
  };
  __device__ static Shared& memory() {
    __shared__ Shared shared;
    return shared;
  }

#if __CUDA_ARCH__ >= 900
  __device__ static uint32_t at_peer(uint32_t address, int rank) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
  }
  __device__ static void tell(int rank, uint32_t to, uint32_t barrier, float x) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                     at_peer(to, rank)),
                 "r"(__float_as_uint(x)), "r"(at_peer(barrier, rank))
                 : "memory");
  }
  __device__ static void wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{.reg .pred done;\n"
        "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;}" ::"r"(barrier),
        "r"(parity)
        : "memory");
  }
#endif

  Shared& shared_;
  int calls_ = 0;
};

}  // namespace skiff::devices

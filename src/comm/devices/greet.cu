#include "comm/devices/exchange.cuh"

namespace skiff::devices {
namespace {

__global__ void emptying_kernel(uint4* box, uint64_t count) {
  cuda::wait_for_previous();
  const uint4 empty = {kEmpty, kEmpty, kEmpty, kEmpty};
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    box[i] = empty;
}

// Thread `to` writes to the first bytes of this rank's first slot at rank `to`.
__global__ void greeting_kernel(const __grid_constant__ Exchange exchange, uint32_t word) {
  cuda::wait_for_previous();
  const auto to = static_cast<int>(threadIdx.x);
  if (to < exchange.size && to != exchange.rank)
    send(exchange.box[to] + static_cast<uint64_t>(exchange.rank) * kSlotBytes,
         uint4{word, word, word, word});
}

}  // namespace

void start_emptying(std::byte* box, size_t bytes, cudaStream_t stream) {
  cuda::launch(emptying_kernel, {.grid = dim3(512), .block = dim3(256), .stream = stream},
               reinterpret_cast<uint4*>(box), bytes / 16);
}

void start_greeting(const Exchange& exchange, uint32_t word, cudaStream_t stream) {
  cuda::launch(greeting_kernel, {.grid = dim3(1), .block = dim3(kMaxDevices), .stream = stream},
               exchange, word);
}

}  // namespace skiff::devices

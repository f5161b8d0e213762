// comm/devices/headers.cuh -- how many rows each rank has, told by devices to devices.
//
// Only rows that count cross a link, and how many these are, each rank's device knows: a recorded
// launch is for the most rows there may be. So each rank sends a header to every other one, to
// byte 0 of the slot: in a dispatch the number of its rows. Whoever has the headers of all knows
// where each rank's rows lie. Because everybody waits for them, a call ends only when all ranks
// have begun it, as exchange.h asks of a collective, even where a rank has no rows to send.
#pragma once
#include "comm/devices/reduce.cuh"

namespace skiff::devices {

// The thread of a block that deals with the header of rank `thread`; sizes of groups are below a
// warp's.
__device__ __forceinline__ bool is_for(const Exchange& exchange, int thread) {
  return thread < exchange.size && thread != exchange.rank;
}

__device__ __forceinline__ void send_header(const Turn& turn, const Exchange& exchange,
                                            uint32_t word) {
  const auto thread = static_cast<int>(threadIdx.x);
  if (blockIdx.x == 0 && is_for(exchange, thread)) turn.send_to(thread, 0, word);
}

__device__ __forceinline__ bool await_header(const Turn& turn, int from, uint32_t& word) {
  turn.peek(from, /*at=*/0, word);
  return turn.await_from<float>(from, /*at=*/0, word);
}

// starts[r] in shared memory: where the rows of rank r begin. Those of a rank that has left are
// none.
__device__ inline void find_starts(const Turn& turn, const Exchange& exchange, int live, int most,
                                   int* starts) {
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < exchange.size) {
    auto word = static_cast<uint32_t>(live);
    starts[thread + 1] =
        !is_for(exchange, thread) || await_header(turn, thread, word) ? static_cast<int>(word) : 0;
  }
  __syncthreads();
  if (thread == 0) {
    starts[0] = 0;
    for (int r = 0; r < exchange.size; ++r)
      starts[r + 1] = min(most, starts[r] + max(0, starts[r + 1]));
  }
  __syncthreads();
}

}  // namespace skiff::devices

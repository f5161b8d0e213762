// comm/devices/exchange.h -- what the kernels of a group of devices share, and their launches.
//
// Each rank has a mailbox: memory on its device that all ranks write. A collective sends its data
// to the mailboxes of the others and reads what they have sent from its own, so nobody reads over
// the link. Only many rows have flags (rings.cuh). Else a mailbox that has been read holds kEmpty
// in every place, senders never send that pattern, and a receiver polls each element until it is
// another one (the "Lamport" protocol of TensorRT-LLM and FlashInfer). Three generations of slots
// take turns. A collective reads one of them and empties that of the collective before; the third
// is empty already, for a rank that is one collective ahead. None can be two ahead, because a
// collective ends only when all ranks have sent.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "ops/cuda/rows/kernels.h"

namespace skiff::devices {

constexpr int kMaxDevices = 8;
constexpr int kGenerations = 3;
// Bytes that a rank can send to another one at a time; more is sent piece by piece, or, of rows of
// one's own, through rings.
constexpr size_t kSlotBytes = size_t{8} << 20;

// The pattern of two bf16, or one f32, that are not there yet: -0 twice, and a number next to -0.
// Senders write +0 and -0 in their place.
constexpr uint32_t kEmpty = 0x80008000u;

// Which generation is next, and how many bytes of each slot of a generation were written. In the
// memory of a rank's own device, because a recorded launch has the same arguments at every replay.
// The first 16 bytes are read at once.
struct alignas(16) ExchangeState {
  uint32_t generation = 0;
  uint32_t used[kGenerations] = {};
  uint32_t blocks = 0;  // that have read it in the collective under way
};

// What the host tells waiting kernels. It lies in page-locked host memory.
struct ExchangeSignal {
  int32_t stop = 0;  // 1: the group has ended, and kernels leave with results that have no meaning
};

// One rank's view of the group; an argument of its kernels.
struct Exchange {
  std::byte* box[kMaxDevices] = {};  // mailboxes by rank: slots [kGenerations][size] of kSlotBytes
  ExchangeState* state = nullptr;
  const ExchangeSignal* signal = nullptr;
  int rank = 0, size = 1;
  // Another rank is on the same device. Then its kernels must be able to run while this one's wait:
  // these are few blocks, and let nobody start early who would take the room.
  bool shares_device = false;
};

// residual += sum of delta over ranks; out = residual / rms(residual) * weight. All [rows, cols],
// with rows * cols elements of delta in at most kSlotBytes. out and delta both bf16 or both f32,
// residual f32. out has +0 in place of -0 or, for f32, of kEmpty.
struct ReduceAddNorm {
  cuda::Matrix out, residual, delta;
  const float* weight = nullptr;
  float eps = 0;
  int rows = 0, cols = 0;
};
void start_reduce_add_norm(const Exchange& exchange, const ReduceAddNorm& args,
                           cudaStream_t stream);

// The same results by the owners of rows (reduce_by_owners.cu), which is faster for many rows: at
// least as many as there are ranks, and at most most_rows_by_owners(). Only the residual rows r
// with r % size == rank are added to; the others keep an older value.
void start_add_norm_by_owners(const Exchange& exchange, const ReduceAddNorm& args,
                              cudaStream_t stream);
int most_rows_by_owners(int size, int64_t row_bytes);

// x [rows, cols], f32 or bf16, becomes its sum over ranks.
void start_all_reduce(const Exchange& exchange, cuda::Matrix x, int rows, int cols,
                      cudaStream_t stream);

// out [rows, size * cols] f32: the columns of every rank's x [rows, cols], by rank.
void start_all_gather(const Exchange& exchange, cuda::Matrix out, cuda::Matrix x, int rows,
                      int cols, cudaStream_t stream);

// The rows of all ranks, one rank after the other: out [sum of rows, cols], x [rows, cols], both
// bf16 or both f32. Only the first *live rows of each rank count, and no rank has more than `most`.
// starts[r], on the device, becomes the place of the first row of rank r, and starts[size] the
// number of rows.
struct DispatchRows {
  cuda::Matrix out, x;
  const int32_t* live = nullptr;  // on the device; null: all rows count
  int32_t* starts = nullptr;
  int rows = 0, out_rows = 0, most = 0, cols = 0;
};
// The way back: each row of out [rows, cols] becomes the sum over ranks of its row of parts
// [sum of rows, cols], rows of this rank that do not count become 0. `starts` is what a dispatch
// has written.
struct CombineRows {
  cuda::Matrix out, parts;
  const int32_t* starts = nullptr;
  int rows = 0, most = 0, cols = 0;
};
// For `most` rows in at most kRowsBytes.
constexpr size_t kRowsHeader = 16, kRowsBytes = kSlotBytes - kRowsHeader;
void start_dispatch_rows(const Exchange& exchange, const DispatchRows& args, cudaStream_t stream);
void start_combine_rows(const Exchange& exchange, const CombineRows& args, cudaStream_t stream);
// The same bits for any number of rows, through rings (rings.cuh).
void start_dispatch_many_rows(const Exchange& exchange, const DispatchRows& args,
                              cudaStream_t stream);
void start_combine_many_rows(const Exchange& exchange, const CombineRows& args,
                             cudaStream_t stream);

// For start-up: makes all of a mailbox empty, and writes a pattern of one's own to every other one.
void start_emptying(std::byte* box, size_t bytes, cudaStream_t stream);
void start_greeting(const Exchange& exchange, uint32_t word, cudaStream_t stream);

}  // namespace skiff::devices

// What a driver, a network and NCCL's settings say about links is not believed: data must arrive.
#include <cuda_runtime.h>

#include <cstring>
#include <vector>

#include "base/load_error.h"
#include "comm/nccl/rank.h"
#include "ops/cuda/check.h"

namespace skiff::nccl {
namespace {

constexpr size_t kPiece = Rank::kPieceBytes;

class OwnStream {
 public:
  OwnStream() {
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  }
  OwnStream(const OwnStream&) = delete;
  ~OwnStream() { cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }
  void wait() const { cuda::check(cudaStreamSynchronize(stream_), "waiting for other ranks"); }

 private:
  cudaStream_t stream_ = nullptr;
};

int pattern_of(int rank) { return 0x5a + rank % 64; }

// Returns the first rank whose piece of `memory` does not hold its pattern, or -1.
int missing(const std::byte* memory, size_t bytes, int size) {
  std::vector<unsigned char> got(bytes);
  for (int rank = 0; rank < size; ++rank) {
    cuda::check(cudaMemcpy(got.data(), memory + static_cast<size_t>(rank) * bytes, bytes,
                           cudaMemcpyDeviceToHost),
                "reading what another rank sent");
    for (const unsigned char byte : got)
      if (byte != pattern_of(rank)) return rank;
  }
  return -1;
}

}  // namespace

// The small pieces take other ways through NCCL than the large ones.
void Rank::greet() {
  const OwnStream stream;
  const Buffer from(memory_.device(), memory_.size());
  for (const size_t bytes : {size_t{1} << 10, size_t{256} << 10, kPiece})
    for (const bool dealt : {false, true}) {
      const size_t all = bytes * static_cast<size_t>(size());
      const size_t at = static_cast<size_t>(rank()) * bytes;
      cuda::check(cudaMemsetAsync(memory_.data(), 0, all, stream.get()), "clearing memory");
      cuda::check(cudaMemsetAsync(from.data(), pattern_of(rank()), all, stream.get()),
                  "writing what is sent");
      cuda::check(cudaMemcpyAsync(memory_.data() + at, from.data(), bytes, cudaMemcpyDeviceToDevice,
                                  stream.get()),
                  "writing what is sent");
      if (dealt)
        link_.all_to_all(from.data(), memory_.data(), bytes, stream.get());
      else
        link_.all_gather(memory_.data() + at, memory_.data(), bytes, stream.get());
      stream.wait();
      if (const int rank = missing(memory_.data(), bytes, size()); rank >= 0)
        fail_load("what rank {} sends to rank {} through NCCL does not arrive", rank, link_.rank());
    }
}

}  // namespace skiff::nccl

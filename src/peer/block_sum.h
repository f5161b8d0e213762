// peer/block_sum.h -- the XXH3-128 of a block whose bytes come piece by piece.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

struct XXH3_state_s;

namespace skiff::peer {

struct Sum {
  uint64_t low = 0, high = 0;
  bool operator==(const Sum&) const = default;
};

// Not thread-safe. The state takes 576 bytes, which are allocated once.
class BlockSum {
 public:
  BlockSum();
  void begin();  // forgets what was added
  void add(std::span<const std::byte> bytes);
  Sum sum() const;  // that of all bytes since begin(); more may be added

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  const std::unique_ptr<XXH3_state_s, Free> state_;
};

// Returns the sum of bytes that are all there.
Sum sum_of(std::span<const std::byte> bytes);

// Copies `from` to `to`, which has the same size, and returns the sum of the copy, whatever becomes
// of `from` meanwhile. Each piece is added while the processor's cache has it, so that memory is
// read once.
Sum copy_and_sum(std::span<const std::byte> from, std::span<std::byte> to);

}  // namespace skiff::peer

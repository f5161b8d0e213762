#include "peer/block_sum.h"

#include <xxhash.h>

#include <algorithm>

#include "base/check.h"

namespace skiff::peer {
namespace {

constexpr size_t kPiece = 128 << 10;  // bytes; less than a core's own cache has

Sum sum_of_hash(const XXH128_hash_t& hash) { return {.low = hash.low64, .high = hash.high64}; }

}  // namespace

void BlockSum::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

BlockSum::BlockSum() : state_(XXH3_createState()) {
  SKIFF_CHECK(state_ != nullptr, "no memory for the state of a checksum");
  begin();
}

void BlockSum::begin() { XXH3_128bits_reset(state_.get()); }

void BlockSum::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
}

Sum BlockSum::sum() const { return sum_of_hash(XXH3_128bits_digest(state_.get())); }

Sum sum_of(std::span<const std::byte> bytes) {
  return sum_of_hash(XXH3_128bits(bytes.data(), bytes.size()));
}

Sum copy_and_sum(std::span<const std::byte> from, std::span<std::byte> to) {
  SKIFF_CHECK_EQ(from.size(), to.size());
  BlockSum sum;
  for (size_t at = 0; at < from.size(); at += kPiece) {
    const auto piece = from.subspan(at, std::min(kPiece, from.size() - at));
    const auto copy = to.subspan(at, piece.size());
    std::ranges::copy(piece, copy.begin());
    sum.add(copy);
  }
  return sum.sum();
}

}  // namespace skiff::peer

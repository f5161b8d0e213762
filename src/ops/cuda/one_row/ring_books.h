// ops/cuda/one_row/ring_books.h -- the bookkeeping of a ring of items of different sizes: where
// each item lies, and what its producer must wait for. Pure functions without CUDA, so that a test
// on the host can play every order of events.
#pragma once
#include <cstdint>

namespace skiff::cuda {

constexpr int kRingItems = 32;  // slots: the most items in the ring at a time

// Where items lie; the producer and every consumer walk through the same sequence.
class RingPlace {
 public:
  constexpr explicit RingPlace(int bytes) : bytes_(bytes) {}
  // The offset of the next item. When the item does not fit behind the last one, the end of the
  // ring stays unused and the item begins at 0.
  constexpr int take(int item_bytes) {
    const bool fits = at_ + item_bytes <= bytes_;
    skipped_ = fits ? 0 : bytes_ - at_;
    const int begin = fits ? at_ : 0;
    at_ = begin + item_bytes;
    return begin;
  }
  constexpr int skipped() const { return skipped_; }

 private:
  int bytes_, at_ = 0, skipped_ = 0;
};

// An item's slot, and the parity of the slot's barrier phase.
struct RingCount {
  int slot = 0;
  uint32_t parity = 0;
  constexpr void advance() {
    if (++slot < kRingItems) return;
    slot = 0;
    parity ^= 1;
  }
};

// The producer's view. Items go from newest() through in_flight() to oldest(): their copies are
// issued, then complete, then all consumers have released them. The parity of a barrier
// distinguishes two phases only, so a slot may be waited for only until it is issued again:
// in_flight() never falls behind oldest(), because an item that was released has arrived.
class RingBooks {
 public:
  constexpr RingBooks(int bytes, int max_bytes_in_flight)
      : free_(bytes), max_bytes_in_flight_(max_bytes_in_flight) {}

  // Before an item of `bytes` (with the end of the ring that it skips) is issued: while
  // needs_release(), wait until oldest() is released; then, while needs_arrival(), wait until
  // in_flight() has arrived.
  constexpr bool needs_release(int bytes) const { return free_ < bytes || items_ == kRingItems; }
  constexpr void released(int bytes) {
    if (items_in_flight_ == items_) arrived(bytes);
    free_ += bytes;
    --items_;
    oldest_.advance();
  }
  constexpr bool needs_arrival(int bytes) const {
    return items_in_flight_ > 0 && bytes_in_flight_ + bytes > max_bytes_in_flight_;
  }
  constexpr void arrived(int bytes) {
    bytes_in_flight_ -= bytes;
    --items_in_flight_;
    in_flight_.advance();
  }
  constexpr void issued(int bytes) {
    free_ -= bytes;
    bytes_in_flight_ += bytes;
    ++items_;
    ++items_in_flight_;
  }
  constexpr void next() { newest_.advance(); }

  constexpr const RingCount& oldest() const { return oldest_; }
  constexpr const RingCount& in_flight() const { return in_flight_; }
  constexpr const RingCount& newest() const { return newest_; }

 private:
  int free_, max_bytes_in_flight_, bytes_in_flight_ = 0, items_ = 0, items_in_flight_ = 0;
  RingCount oldest_, in_flight_, newest_;
};

}  // namespace skiff::cuda

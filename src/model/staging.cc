#include "model/staging.h"

#include <algorithm>

namespace skiff::model {
namespace {

// Pieces of the ring beyond one per thread, so that no thread waits for the oldest copy.
constexpr size_t kSpare = 3;

bool is_whole(const Slot& slot) { return slot.kind == Slot::kNorm || slot.kind == Slot::kVector; }

Tensor view(const Buffer& buffer, DType dtype, const Slot& slot) {
  if (slot.experts) return buffer.view(dtype, {slot.experts, slot.out, slot.in});
  if (is_whole(slot)) return buffer.view(dtype, {slot.out});
  return buffer.view(dtype, {slot.out, slot.in});
}

}  // namespace

Staging::Staging(const Values& values, const std::vector<Slot>& slots, const ModelSpec& spec,
                 Ops& ops, int threads, size_t chunk)
    : values_(values), slots_(slots), ops_(ops), threads_(threads) {
  size_t weight = 0, bias = 0, piece = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (is_tied_head(slots[i], spec)) continue;
    add_chunks(i, chunk);
    weight = std::max(weight, static_cast<size_t>(slots[i].elements()) * bytes(values.dtype(i)));
    if (values.has_bias(i)) bias = std::max(bias, static_cast<size_t>(slots[i].out) * 4);
  }
  weight_ = Buffer(ops.device(), weight);
  bias_ = Buffer(ops.device(), bias);
  if (ops.device() == Device{}) return;
  for (const Chunk& c : chunks_) piece = std::max(piece, bytes_of(c));
  ring_.resize(std::min(chunks_.size(), static_cast<size_t>(threads) + kSpare));
  for (Buffer& buffer : ring_) buffer = Buffer::pinned(piece);
  ahead_ = std::make_unique<ReadAhead>(chunks_.size(), threads, ring_.size(), [this](size_t i) {
    fill(chunks_[i], ring_[i % ring_.size()].data());
  });
}

void Staging::add_chunks(size_t slot, size_t bytes) {
  const Slot& s = slots_[slot];
  if (values_.has_bias(slot)) chunks_.push_back({slot, /*bias=*/true, 0, s.out});
  const int64_t row = s.in * static_cast<int64_t>(skiff::bytes(values_.dtype(slot)));
  const int64_t rows = s.elements() / s.in;
  const int64_t most = is_whole(s) ? rows : std::max<int64_t>(1, static_cast<int64_t>(bytes) / row);
  for (int64_t first = 0; first < rows; first += most)
    chunks_.push_back({slot, /*bias=*/false, first, std::min(most, rows - first)});
}

// The part of the slot's memory that a chunk fills, as rows.
Tensor Staging::place_of(const Chunk& chunk) const {
  const Slot& slot = slots_[chunk.slot];
  if (chunk.bias) return bias_.view(DType::kF32, {1, slot.out});
  return weight_.view(values_.dtype(chunk.slot), {slot.elements() / slot.in, slot.in})
      .row_range(chunk.first, chunk.rows);
}

size_t Staging::bytes_of(const Chunk& chunk) const {
  const Tensor place = place_of(chunk);
  return static_cast<size_t>(place.elements()) * bytes(place.dtype);
}

void Staging::fill(const Chunk& chunk, std::byte* to) const {
  if (chunk.bias) return values_.fill_bias(chunk.slot, reinterpret_cast<float*>(to));
  values_.fill(chunk.slot, chunk.first, chunk.rows, to);
}

Staging::Plain Staging::take(size_t slot) {
  const size_t begin = taken_;
  while (taken_ < chunks_.size() && chunks_[taken_].slot == slot) ++taken_;
  SKIFF_CHECK(begin < taken_, "slot {} is not the next", slot);
  if (ahead_)
    bring(begin, taken_);
  else
    fill_here(begin, taken_);
  Plain plain{.weight = view(weight_, values_.dtype(slot), slots_[slot]), .bias = {}};
  if (values_.has_bias(slot)) plain.bias = bias_.view(DType::kF32, {slots_[slot].out});
  return plain;
}

void Staging::fill_here(size_t begin, size_t end) {
  const auto fill_one = [&](size_t i) {
    fill(chunks_[begin + i], static_cast<std::byte*>(place_of(chunks_[begin + i]).data));
  };
  if (end - begin == 1) return fill_one(0);
  ReadAhead ahead(end - begin, threads_, end - begin, fill_one);
  for (size_t i = begin; i < end; ++i) ahead.next();
}

// One copy is always in flight while the next piece is waited for.
void Staging::bring(size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    ahead_->next();
    const Tensor to = place_of(chunks_[i]);
    ops_.copy(to, ring_[i % ring_.size()].view(to.dtype, {to.rows(), to.cols()}));
    if (copying_) {
      ops_.wait(copied_);
      ahead_->give_back();
    }
    copied_ = ops_.mark();
    copying_ = true;
  }
}

}  // namespace skiff::model

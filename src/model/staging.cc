#include "model/staging.h"

#include <algorithm>

#include "base/load_error.h"
#include "model/finite.h"

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

Staging::Staging(const Values& values, const std::vector<Slot>& slots,
                 const std::vector<Kept>& kept, const ModelSpec& spec, Ops& ops, int threads,
                 size_t chunk)
    : values_(values),
      slots_(slots),
      kept_(kept),
      ops_(ops),
      threads_(threads),
      codes_(ops.device()) {
  const bool on_host = ops.device() == Device{};
  size_t weight = 0, bias = 0, piece = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (is_tied_head(slots[i], spec)) continue;
    add_chunks(i, chunk);
    if (values.has_bias(i)) bias = std::max(bias, static_cast<size_t>(slots[i].out) * 4);
    if (kept[i].quantized())
      codes_.reserve(slots[i], kept[i].format);
    else
      weight = std::max(weight, static_cast<size_t>(slots[i].elements()) * bytes(values.dtype(i)));
  }
  for (const Chunk& c : chunks_)
    if (!on_host || quantizes(c)) piece = std::max(piece, bytes_of(c));
  weight_ = Buffer(ops.device(), on_host ? weight : std::max(weight, piece));
  bias_ = Buffer(ops.device(), bias);
  make_ring(std::min(chunks_.size(), static_cast<size_t>(threads) + kSpare), piece);
  if (on_host) return;
  ahead_ = std::make_unique<ReadAhead>(chunks_.size(), threads, ring_.size(), [this](size_t i) {
    fill(chunks_[i], ring_[i % ring_.size()].data());
  });
}

void Staging::make_ring(size_t pieces, size_t bytes) {
  if (bytes == 0) return;
  ring_.resize(pieces);
  for (Buffer& buffer : ring_)
    buffer = ops_.device() == Device{} ? Buffer({}, bytes) : Buffer::pinned(bytes);
}

// Bands keep to one expert, because scales do.
void Staging::add_chunks(size_t slot, size_t bytes) {
  const Slot& s = slots_[slot];
  if (values_.has_bias(slot)) chunks_.push_back({slot, /*bias=*/true, 0, s.out});
  const DType dtype = kept_[slot].stored ? kept_[slot].format.dtype : values_.dtype(slot);
  const auto row = static_cast<int64_t>(std::max<size_t>(1, byte_size(dtype, s.in)));
  const int64_t rows = s.elements() / s.in;
  const bool bands = kept_[slot].quantized();
  int64_t most = is_whole(s) ? rows : std::max<int64_t>(1, static_cast<int64_t>(bytes) / row);
  if (bands) {
    const int block = kept_[slot].format.block_out;
    most = block == 0 ? s.out : std::max<int64_t>(1, most / block) * block;
  }
  const int64_t matrix = bands ? s.out : rows;
  for (int64_t begin = 0; begin < rows; begin += matrix)
    for (int64_t first = begin; first < begin + matrix; first += most)
      chunks_.push_back({slot, /*bias=*/false, first, std::min(most, begin + matrix - first)});
}

bool Staging::quantizes(const Chunk& chunk) const {
  return !chunk.bias && kept_[chunk.slot].rule.has_value();
}

bool Staging::has_codes(const Chunk& chunk) const {
  return !chunk.bias && kept_[chunk.slot].stored;
}

// A chunk at the beginning of `buffer`.
Tensor Staging::as_rows(const Chunk& chunk, const Buffer& buffer) const {
  const Slot& slot = slots_[chunk.slot];
  if (chunk.bias) return buffer.view(DType::kF32, {1, slot.out});
  return buffer.view(values_.dtype(chunk.slot), {chunk.rows, slot.in});
}

// Where a chunk goes, as rows: to its part of the slot's memory, and a band to the beginning of it.
Tensor Staging::place_of(const Chunk& chunk) const {
  const Slot& slot = slots_[chunk.slot];
  if (chunk.bias || quantizes(chunk)) return as_rows(chunk, chunk.bias ? bias_ : weight_);
  return weight_.view(values_.dtype(chunk.slot), {slot.elements() / slot.in, slot.in})
      .row_range(chunk.first, chunk.rows);
}

size_t Staging::bytes_of(const Chunk& chunk) const {
  const Slot& slot = slots_[chunk.slot];
  if (chunk.bias) return byte_size(DType::kF32, slot.out);
  if (has_codes(chunk)) return codes_.piece_bytes(slot, kept_[chunk.slot].format, chunk.rows);
  return byte_size(values_.dtype(chunk.slot), chunk.rows * slot.in);
}

void Staging::fill(const Chunk& chunk, std::byte* to) const {
  if (chunk.bias) return values_.fill_bias(chunk.slot, reinterpret_cast<float*>(to));
  if (has_codes(chunk)) {
    const WeightFormat& format = kept_[chunk.slot].format;
    return values_.fill_codes(chunk.slot, chunk.first,
                              codes_.piece(slots_[chunk.slot], format, chunk.rows, to));
  }
  values_.fill(chunk.slot, chunk.first, chunk.rows, to);
  const Slot& slot = slots_[chunk.slot];
  const bool vector = slot.kind == Slot::kVector;  // it decides which experts are chosen
  if (!quantizes(chunk) && !vector) return;
  const int64_t in = slot.in;
  const auto bad = find_not_finite(to, values_.dtype(chunk.slot), chunk.rows * in);
  if (!bad) return;
  if (vector)
    fail_load("{} has a value that is not finite, number {}: repair the checkpoint",
              values_.origin(chunk.slot, chunk.first + *bad), *bad);
  fail_load(
      "{} has a value that is not finite, in row {}, column {}: it cannot be quantized; load it "
      "without --quantization, or repair the checkpoint",
      values_.origin(chunk.slot, chunk.first + *bad / in), (chunk.first + *bad / in) % slot.out,
      *bad % in);
}

void Staging::quantize(const Chunk& chunk, Tensor plain) {
  const Kept& kept = kept_[chunk.slot];
  ops_.quantize(codes_.rows(slots_[chunk.slot], kept.format, chunk.first, chunk.rows), plain,
                *kept.rule);
}

Linear Staging::take(size_t slot) {
  const size_t begin = taken_;
  while (taken_ < chunks_.size() && chunks_[taken_].slot == slot) ++taken_;
  SKIFF_CHECK(begin < taken_, "slot {} is not the next", slot);
  const bool quantized = kept_[slot].quantized();
  if (ahead_)
    bring(begin, taken_);
  else if (kept_[slot].rule)
    quantize_here(begin, taken_);
  else
    fill_here(begin, taken_);
  Linear out{.experts = slots_[slot].experts};
  if (quantized)
    out = codes_.view(slots_[slot], kept_[slot].format);
  else
    out.weight = view(weight_, values_.dtype(slot), slots_[slot]);
  if (kept_[slot].stored) add_small_parts(out, slot);
  if (values_.has_bias(slot)) out.bias = bias_.view(DType::kF32, {slots_[slot].out});
  return out;
}

// The numbers that a stored weight has besides those of its rows, where Ops computes.
void Staging::add_small_parts(Linear& out, size_t slot) {
  std::vector<int32_t> order = values_.order(slot);
  std::vector<float> scales = values_.input_scales(slot);
  const auto there = [&](Buffer& buffer, auto& numbers, DType dtype) {
    const auto n = std::ssize(numbers);
    buffer = Buffer(ops_.device(), byte_size(dtype, n));
    const Tensor to = buffer.view(dtype, {n});
    ops_.copy(to, host_tensor(numbers.data(), dtype, {n}));
    return to;
  };
  if (!order.empty()) out.order = there(order_, order, DType::kI32);
  if (!scales.empty()) out.input_scale = there(input_scale_, scales, DType::kF32);
}

void Staging::fill_here(size_t begin, size_t end) {
  const auto fill_one = [&](size_t i) {
    const Chunk& chunk = chunks_[begin + i];
    if (has_codes(chunk))
      return values_.fill_codes(
          chunk.slot, chunk.first,
          codes_.rows(slots_[chunk.slot], kept_[chunk.slot].format, chunk.first, chunk.rows));
    fill(chunk, static_cast<std::byte*>(place_of(chunk).data));
  };
  if (end - begin == 1) return fill_one(0);
  ReadAhead ahead(end - begin, threads_, end - begin, fill_one);
  for (size_t i = begin; i < end; ++i) ahead.next();
}

void Staging::quantize_here(size_t begin, size_t end) {
  const auto piece = [&](size_t i) -> const Buffer& {
    return chunks_[begin + i].bias ? bias_ : ring_[i % ring_.size()];
  };
  ReadAhead ahead(end - begin, threads_, ring_.size(),
                  [&](size_t i) { fill(chunks_[begin + i], piece(i).data()); });
  for (size_t i = 0; i < end - begin; ++i) {
    ahead.next();
    const Chunk& chunk = chunks_[begin + i];
    if (!chunk.bias) quantize(chunk, as_rows(chunk, piece(i)));
    ahead.give_back();
  }
}

void Staging::bring_codes(const Chunk& chunk, const Buffer& piece) {
  const Slot& slot = slots_[chunk.slot];
  const WeightFormat& format = kept_[chunk.slot].format;
  const Linear to = codes_.rows(slot, format, chunk.first, chunk.rows);
  const Linear from = codes_.piece(slot, format, chunk.rows, piece.data());
  // Elements of four bits are copied by the byte: their rows are whole bytes.
  const auto bytes_of = [](Tensor t) {
    t.dim = {1, static_cast<int64_t>(byte_size(t.dtype, t.elements())), 1, 1};
    t.dtype = DType::kU8;
    t.row_stride = t.dim[1];
    return t;
  };
  ops_.copy(bytes_of(to.weight), bytes_of(from.weight));
  ops_.copy(bytes_of(to.scale), bytes_of(from.scale));
  if (format.zero) ops_.copy(bytes_of(to.zero), bytes_of(from.zero));
}

// One copy is always in flight while the next piece is waited for.
void Staging::bring(size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    ahead_->next();
    const Chunk& chunk = chunks_[i];
    const Buffer& piece = ring_[i % ring_.size()];
    if (has_codes(chunk)) {
      bring_codes(chunk, piece);
    } else {
      const Tensor to = place_of(chunk);
      ops_.copy(to, piece.view(to.dtype, {to.rows(), to.cols()}));
      if (quantizes(chunk)) quantize(chunk, to);
    }
    if (copying_) {
      ops_.wait(copied_);
      ahead_->give_back();
    }
    copied_ = ops_.mark();
    copying_ = true;
  }
}

}  // namespace skiff::model

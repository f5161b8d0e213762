#include "model/kv_cache.h"

#include <algorithm>

#include "arch/cost.h"
#include "base/round_up.h"

namespace skiff {
namespace {

KvShape gqa(const Layer& layer) { return kv_shape(layer); }

// Keys (or values) of one block of one layer.
size_t half_block(const Layer& layer, int block_size, DType dtype) {
  return static_cast<size_t>(block_size) * static_cast<size_t>(gqa(layer).kv_heads) *
         static_cast<size_t>(gqa(layer).head_dim) * bytes(dtype);
}

size_t half_layer(const Layer& layer, int num_blocks, int block_size, DType dtype) {
  return round_up(half_block(layer, block_size, dtype) * static_cast<size_t>(num_blocks),
                  kTensorAlign);
}

size_t all_bytes(const ModelSpec& spec, int num_blocks, int block_size, DType dtype) {
  size_t sum = 0;
  for (const Layer& layer : spec.layers)
    sum += 2 * half_layer(layer, num_blocks, block_size, dtype);
  return sum;
}

// f(one block of a layer's keys or values, its place in a slot that begins at `at`) for all layers.
template <class F>
void each_half(std::span<const KvLayer> layers, int block, std::byte* at, F f) {
  for (const KvLayer& layer : layers) {
    for (const Tensor* pages : {&layer.k, &layer.v}) {
      const Tensor half = pages->row_range(block, 1).reshaped({1, pages->cols()});
      f(half, host_tensor(at, half.dtype, {1, half.cols()}));
      at += static_cast<size_t>(half.cols()) * bytes(half.dtype);
    }
  }
}

}  // namespace

size_t KvCache::bytes_per_block(const ModelSpec& spec, int block_size, DType dtype) {
  size_t sum = 0;
  for (const Layer& layer : spec.layers) sum += 2 * half_block(layer, block_size, dtype);
  return sum;
}

KvCache::KvCache(const ModelSpec& spec, int num_blocks, int block_size, DType dtype, Device device)
    : storage_(device, all_bytes(spec, num_blocks, block_size, dtype)) {
  SKIFF_CHECK(num_blocks > 0 && block_size > 0, "{} blocks of {}", num_blocks, block_size);
  size_t at = 0;
  for (const Layer& layer : spec.layers) {
    const size_t half = half_layer(layer, num_blocks, block_size, dtype);
    const auto view = [&](size_t offset) {
      return storage_.view(
          dtype, {num_blocks, block_size, gqa(layer).kv_heads, gqa(layer).head_dim}, offset);
    };
    layers_.push_back({.k = view(at), .v = view(at + half), .page_size = block_size});
    at += 2 * half;
  }
}

HostBlocks::HostBlocks(const ModelSpec& spec, int slots, int block_size, DType dtype, Device device)
    : slots_(slots), block_bytes_(KvCache::bytes_per_block(spec, block_size, dtype)) {
  const size_t size = static_cast<size_t>(slots) * block_bytes_;
  storage_ = device == Device{} ? Buffer(Device{}, size) : Buffer::pinned(size);
}

std::span<std::byte> HostBlocks::slot(int i) const {
  SKIFF_CHECK(i >= 0 && i < slots_, "slot {} of {}", i, slots_);
  return {storage_.data() + static_cast<size_t>(i) * block_bytes_, block_bytes_};
}

void HostBlocks::save(Ops& ops, std::span<const KvLayer> layers, int block, int slot) const {
  each_half(layers, block, this->slot(slot).data(),
            [&](Tensor device, Tensor host) { ops.copy(host, device); });
}

void HostBlocks::load(Ops& ops, std::span<const KvLayer> layers, int slot, int block) const {
  each_half(layers, block, this->slot(slot).data(),
            [&](Tensor device, Tensor host) { ops.copy(device, host); });
}

}  // namespace skiff

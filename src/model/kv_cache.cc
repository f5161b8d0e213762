#include "model/kv_cache.h"

#include <algorithm>

#include "arch/cost.h"
#include "base/round_up.h"

namespace skiff::model {
namespace {

KvShape gqa(const Layer& layer) { return kv_shape(layer); }

// Bytes of the keys (or values) of one block of one layer.
size_t half_block(const Layer& layer, int block_size, DType dtype) {
  return round_up(static_cast<size_t>(block_size) * static_cast<size_t>(gqa(layer).kv_heads) *
                      static_cast<size_t>(gqa(layer).head_dim) * bytes(dtype),
                  kTensorAlign);
}

// All layers of a block, as one row. The keys of the first layer are at its beginning.
Tensor whole_block(std::span<const KvLayer> layers, int block, size_t block_bytes) {
  Tensor piece = layers.front().k.row_range(block, 1);
  SKIFF_CHECK_EQ(static_cast<size_t>(piece.row_stride) * bytes(piece.dtype), block_bytes);
  piece.dim = {1, piece.row_stride, 1, 1};
  return piece;
}

}  // namespace

size_t KvCache::bytes_per_block(const ModelSpec& spec, int block_size, DType dtype) {
  size_t sum = 0;
  for (const Layer& layer : spec.layers) sum += 2 * half_block(layer, block_size, dtype);
  return sum;
}

KvCache::KvCache(const ModelSpec& spec, int num_blocks, int block_size, DType dtype, Device device)
    : storage_(device, static_cast<size_t>(num_blocks) * bytes_per_block(spec, block_size, dtype)) {
  SKIFF_CHECK(num_blocks > 0 && block_size > 0, "{} blocks of {}", num_blocks, block_size);
  const size_t stride = bytes_per_block(spec, block_size, dtype) / bytes(dtype);
  size_t at = 0;
  for (const Layer& layer : spec.layers) {
    const size_t half = half_block(layer, block_size, dtype);
    const auto view = [&](size_t offset) {
      Tensor pages =
          storage_.view(dtype, {1, block_size, gqa(layer).kv_heads, gqa(layer).head_dim}, offset);
      pages.dim[0] = num_blocks;
      pages.row_stride = static_cast<int64_t>(stride);
      return pages;
    };
    layers_.push_back({.k = view(at), .v = view(at + half), .page_size = block_size});
    at += 2 * half;
  }
}

HostBlocks::HostBlocks(const ModelSpec& spec, int num_blocks, int block_size, DType dtype,
                       Device device)
    : num_blocks_(num_blocks), block_bytes_(KvCache::bytes_per_block(spec, block_size, dtype)) {
  const size_t size = static_cast<size_t>(num_blocks) * block_bytes_;
  storage_ = device == Device{} ? Buffer(Device{}, size) : Buffer::pinned(size);
}

std::span<std::byte> HostBlocks::block(int host) const {
  SKIFF_CHECK(host >= 0 && host < num_blocks_, "host block {} of {}", host, num_blocks_);
  return {storage_.data() + static_cast<size_t>(host) * block_bytes_, block_bytes_};
}

Tensor HostBlocks::view_of(int host, DType dtype) const {
  return host_tensor(block(host).data(), dtype,
                     {1, static_cast<int64_t>(block_bytes_ / bytes(dtype))});
}

void HostBlocks::save(Ops& ops, std::span<const KvLayer> layers, int block, int host) const {
  const Tensor piece = whole_block(layers, block, block_bytes_);
  ops.copy(view_of(host, piece.dtype), piece);
}

void HostBlocks::load(Ops& ops, std::span<const KvLayer> layers, int host, int block) const {
  const Tensor piece = whole_block(layers, block, block_bytes_);
  ops.copy(piece, view_of(host, piece.dtype));
}

}  // namespace skiff::model

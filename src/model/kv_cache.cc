#include "model/kv_cache.h"

#include <algorithm>

#include "arch/cost.h"
#include "base/huge_pages.h"
#include "base/round_up.h"
#include "model/kv_layout.h"
#include "ops/kv_quant.h"
#include "ops/latent_row.h"
#include "tensor/pages.h"
#include "tensor/returned_memory.h"

namespace skiff::model {
namespace {

// The bytes of a token's row where `format` keeps latents in 8 bits, else none.
std::optional<int> quantized_latent(const Layer& layer, const KvFormat& format) {
  const auto* mla = std::get_if<Mla>(&layer.mixer);
  if (mla == nullptr || !format.quantized()) return std::nullopt;
  SKIFF_CHECK(format.dtype == DType::kF8E4M3 && !format.fixed, "a latent cache of {}",
              describe(format));
  return LatentRow{mla->kv_rank, mla->rope_dim}.bytes();
}

// All layers of a block, as one row of bytes. The keys of the first layer are at its beginning.
Tensor whole_block(std::span<const KvLayer> layers, int block, size_t block_bytes) {
  Tensor piece = layers.front().k.row_range(block, 1);
  SKIFF_CHECK_EQ(byte_size(piece.dtype, piece.row_stride), block_bytes);
  piece.dtype = DType::kU8;
  piece.row_stride = static_cast<int64_t>(block_bytes);
  piece.dim = {1, piece.row_stride, 1, 1};
  return piece;
}

}  // namespace

LayerLayout::LayerLayout(const Layer& layer, int block_size, const KvFormat& format) {
  const KvShape shape = kv_shape(layer);
  halves = static_cast<size_t>(shape.tensors);
  if (const auto row = quantized_latent(layer, format)) {
    half = round_up(static_cast<size_t>(block_size) * static_cast<size_t>(*row), kTensorAlign);
    return;
  }
  const int64_t heads = int64_t{block_size} * shape.kv_heads;
  half = round_up(byte_size(format.dtype, heads * shape.head_dim), kTensorAlign);
  scales =
      round_up(byte_size(DType::kBF16, heads * kv_scales(format, shape.head_dim)), kTensorAlign);
}

double kv_token_bytes(const ModelSpec& spec, const KvFormat& format) {
  double bits_of_token = 0;
  for (const Layer& layer : spec.layers) {
    if (const auto row = quantized_latent(layer, format)) {
      bits_of_token += 8.0 * *row;
      continue;
    }
    const KvShape shape = kv_shape(layer);
    const int head = shape.head_dim * bits(format.dtype) + 16 * kv_scales(format, shape.head_dim);
    bits_of_token += 1.0 * shape.tensors * shape.kv_heads * head;
  }
  return bits_of_token / 8;
}

size_t KvCache::bytes_per_block(const ModelSpec& spec, int block_size, const KvFormat& format) {
  size_t sum = 0;
  for (const Layer& layer : spec.layers) sum += LayerLayout(layer, block_size, format).bytes();
  return sum;
}

KvCache::KvCache(const ModelSpec& spec, int num_blocks, int block_size, const KvFormat& format,
                 Device device, std::span<const FixedKvScales> fixed)
    : storage_(device,
               static_cast<size_t>(num_blocks) * bytes_per_block(spec, block_size, format)) {
  SKIFF_CHECK(num_blocks > 0 && block_size > 0, "{} blocks of {}", num_blocks, block_size);
  SKIFF_CHECK(!format.fixed || fixed.size() == spec.layers.size(), "{} of {} layers have scales",
              fixed.size(), spec.layers.size());
  // Attention reads all of a sequence's blocks in each step. Small pages would cost it an entry of
  // the page table for every few positions.
  if (device == Device{}) ask_for_huge_pages({storage_.data(), storage_.size()});
  const auto stride = static_cast<int64_t>(bytes_per_block(spec, block_size, format));
  size_t at = 0;
  for (const Layer& layer : spec.layers) {
    const LayerLayout plan(layer, block_size, format);
    const KvShape shape = kv_shape(layer);
    const auto view = [&](size_t offset, DType dtype, int64_t rows, int64_t cols, int64_t each) {
      Tensor pages = storage_.view(dtype, {1, rows, cols, each}, offset);
      pages.dim[0] = num_blocks;
      pages.row_stride = stride * 8 / bits(dtype);
      return pages;
    };
    const std::optional<int> row = quantized_latent(layer, format);
    const auto elements = [&](size_t offset) {
      if (row) return view(offset, DType::kU8, block_size, 1, *row);
      return view(offset, format.dtype, block_size, shape.kv_heads, shape.head_dim);
    };
    KvLayer& made = layers_.emplace_back(KvLayer{.k = elements(at),
                                                 .v = {},
                                                 .page_size = block_size,
                                                 .format = format,
                                                 .k_scale = {},
                                                 .v_scale = {}});
    if (plan.halves > 1) made.v = elements(at + plan.half);
    if (plan.scales > 0) {
      const int numbers = kv_scales(format, shape.head_dim);
      const auto scales = [&](size_t offset) {
        return view(offset, DType::kBF16, shape.kv_heads, block_size, numbers);
      };
      made.k_scale = scales(at + 2 * plan.half);
      made.v_scale = scales(at + 2 * plan.half + plan.scales);
    }
    if (format.fixed) {
      const FixedKvScales& scales = fixed[layers_.size() - 1];
      made.k_scale = scales.k;
      made.v_scale = scales.v;
    }
    at += plan.bytes();
  }
}

size_t KvCache::give_back() const { return skiff::give_back(storage_); }

void KvCache::take_back() const { skiff::take_back(storage_); }

size_t HostBlocks::give_back() const { return give_back_pages(storage_.data(), storage_.size()); }

HostBlocks::HostBlocks(const ModelSpec& spec, int num_blocks, int block_size,
                       const KvFormat& format, Device device, int parts)
    : num_blocks_(num_blocks),
      block_bytes_(KvCache::bytes_per_block(spec, block_size, format) * static_cast<size_t>(parts)),
      stride_(block_bytes_) {
  const size_t size = static_cast<size_t>(num_blocks) * block_bytes_;
  storage_ = device == Device{} ? Buffer(Device{}, size) : Buffer::pinned(size);
  first_ = storage_.data();
}

HostBlocks HostBlocks::part(int index, int of) const {
  SKIFF_CHECK(index >= 0 && index < of && block_bytes_ % static_cast<size_t>(of) == 0,
              "part {} of {} of {} bytes", index, of, block_bytes_);
  HostBlocks part;
  part.num_blocks_ = num_blocks_;
  part.block_bytes_ = block_bytes_ / static_cast<size_t>(of);
  part.stride_ = stride_;
  part.first_ = first_ + static_cast<size_t>(index) * part.block_bytes_;
  return part;
}

std::span<std::byte> HostBlocks::block(int host) const {
  SKIFF_CHECK(host >= 0 && host < num_blocks_, "host block {} of {}", host, num_blocks_);
  return {first_ + static_cast<size_t>(host) * stride_, block_bytes_};
}

Tensor HostBlocks::view_of(int host) const {
  return host_tensor(block(host).data(), DType::kU8, {1, static_cast<int64_t>(block_bytes_)});
}

void HostBlocks::save(Ops& ops, std::span<const KvLayer> layers, int block, int host) const {
  const Tensor piece = whole_block(layers, block, block_bytes_);
  ops.copy(view_of(host), piece);
}

Arrival HostBlocks::load(std::span<const KvLayer> layers, int host, int block) const {
  return {whole_block(layers, block, block_bytes_), view_of(host)};
}

}  // namespace skiff::model

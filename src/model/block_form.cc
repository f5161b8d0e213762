#include "model/block_form.h"

#include <cstring>

#include "arch/cost.h"
#include "arch/shard.h"
#include "model/kv_layout.h"
#include "ops/kv_quant.h"

namespace skiff::model {

BlockForm::BlockForm(const ModelSpec& whole, const ModelSpec& local, int ranks, int block_size,
                     const KvFormat& format)
    : ranks_(ranks) {
  SKIFF_CHECK_EQ(whole.layers.size(), local.layers.size());
  for (int rank = 0; rank < ranks; ++rank) {
    whole_ = 0;
    for (size_t i = 0; i < whole.layers.size(); ++i) {
      add_layer(whole.layers[i], local.layers[i], rank, grouped_, whole_, block_size, format);
      grouped_ += LayerLayout(local.layers[i], block_size, format).bytes();
      whole_ += LayerLayout(whole.layers[i], block_size, format).bytes();
    }
  }
}

void BlockForm::add_layer(const Layer& whole, const Layer& local, int rank, size_t grouped_at,
                          size_t whole_at, int block_size, const KvFormat& format) {
  const KvShape all = kv_shape(whole), own = kv_shape(local);
  const LayerLayout from(local, block_size, format), to(whole, block_size, format);
  // Every rank has the same: latents, whatever the form of their rows, and a drafter that is not
  // cut.
  if (all.kv_heads == own.kv_heads) {
    SKIFF_CHECK_EQ(from.bytes(), to.bytes());
    pieces_.push_back({.grouped = grouped_at, .whole = whole_at, .bytes = to.bytes(), .rows = 1});
    return;
  }
  const Share share = share_of(all.kv_heads, rank, ranks_);
  SKIFF_CHECK_EQ(share.count, own.kv_heads);
  const size_t head = byte_size(format.dtype, all.head_dim);
  const size_t scale =
      byte_size(DType::kBF16, int64_t{block_size} * kv_scales(format, all.head_dim));
  const auto first = static_cast<size_t>(share.first), count = static_cast<size_t>(share.count);
  for (size_t half = 0; half < from.halves; ++half) {
    pieces_.push_back({.grouped = grouped_at + half * from.half,
                       .grouped_stride = count * head,
                       .whole = whole_at + half * to.half + first * head,
                       .whole_stride = static_cast<size_t>(all.kv_heads) * head,
                       .bytes = count * head,
                       .rows = static_cast<size_t>(block_size)});
    if (from.scales == 0) continue;
    // Heads come first here, so those of a rank are one piece.
    pieces_.push_back({.grouped = grouped_at + from.halves * from.half + half * from.scales,
                       .grouped_stride = 0,
                       .whole = whole_at + to.halves * to.half + half * to.scales + first * scale,
                       .whole_stride = 0,
                       .bytes = count * scale,
                       .rows = 1});
  }
}

void BlockForm::join(std::span<const std::byte> grouped, std::span<std::byte> whole) const {
  SKIFF_CHECK(grouped.size() == grouped_ && whole.size() == whole_);
  for (const Piece& piece : pieces_)
    for (size_t row = 0; row < piece.rows; ++row)
      std::memcpy(whole.data() + piece.whole + row * piece.whole_stride,
                  grouped.data() + piece.grouped + row * piece.grouped_stride, piece.bytes);
}

void BlockForm::cut(std::span<const std::byte> whole, std::span<std::byte> grouped) const {
  SKIFF_CHECK(grouped.size() == grouped_ && whole.size() == whole_);
  for (const Piece& piece : pieces_)
    for (size_t row = 0; row < piece.rows; ++row)
      std::memcpy(grouped.data() + piece.grouped + row * piece.grouped_stride,
                  whole.data() + piece.whole + row * piece.whole_stride, piece.bytes);
}

}  // namespace skiff::model

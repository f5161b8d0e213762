// model/block_form.h -- the bytes of a block, as a group of ranks keeps them and as one rank would.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "arch/spec.h"
#include "ops/ops.h"

namespace skiff::model {

// A group keeps the parts of all ranks one after the other, each as a KvCache of that rank's heads
// has them; a head that several ranks have is there several times. The whole form, that of one
// rank, has every head once, so that groups of different sizes can exchange blocks. Thread-safe.
class BlockForm {
 public:
  // `whole` has the layers that one rank would keep, `local` those of a rank of the group: their
  // key and value heads are cut as share_of() does, or the rank has all of them.
  BlockForm(const ModelSpec& whole, const ModelSpec& local, int ranks, int block_size,
            const KvFormat& format);
  size_t grouped_bytes() const { return grouped_; }
  size_t whole_bytes() const { return whole_; }
  // True for one rank: both forms are the same.
  bool same() const { return ranks_ == 1; }
  // Bytes between the parts of a layer are left as they are.
  void join(std::span<const std::byte> grouped, std::span<std::byte> whole) const;
  void cut(std::span<const std::byte> whole, std::span<std::byte> grouped) const;

 private:
  // A rectangle of bytes that a rank has of a layer: `rows` pieces of `bytes`.
  struct Piece {
    size_t grouped = 0, grouped_stride = 0;
    size_t whole = 0, whole_stride = 0;
    size_t bytes = 0, rows = 0;
  };
  void add_layer(const Layer& whole, const Layer& local, int rank, size_t grouped_at,
                 size_t whole_at, int block_size, const KvFormat& format);

  const int ranks_;
  size_t grouped_ = 0, whole_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace skiff::model

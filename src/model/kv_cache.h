// model/kv_cache.h -- the memory of the blocks that block numbers name. The scheduler never
// includes this.
#pragma once
#include <span>
#include <vector>

#include "arch/spec.h"
#include "model/weights.h"
#include "ops/ops.h"
#include "tensor/memory.h"

namespace skiff::model {

// Returns the bytes that attention reads of one token of the context, over all layers: the elements
// of keys and values, and their scales.
double kv_token_bytes(const ModelSpec& spec, const KvFormat& format);

// A block is one piece of memory, so that moving it is one copy: for each layer its keys and its
// values, [page_size][kv_heads][head_dim], and in a quantized cache the scales of these keys and
// values, [kv_heads][page_size][kv_scales()]; of latents the rows alone. All are views whose pages
// lie a whole block apart; each page begins on a cache line. Fixed scales are those of `fixed`, for
// each layer, which must outlive the cache; they are no part of a block.
class KvCache {
 public:
  // Returns the bytes of one block over all layers, keys and values.
  static size_t bytes_per_block(const ModelSpec& spec, int block_size, const KvFormat& format);
  KvCache(const ModelSpec& spec, int num_blocks, int block_size, const KvFormat& format,
          Device device, std::span<const FixedKvScales> fixed = {});
  std::span<const KvLayer> layers() const { return layers_; }
  // Lets the system have the memory; the contents are lost, addresses stay. Returns the bytes that
  // left. take_back() comes before a block is used again, and throws where there is no room (see
  // tensor/returned_memory.h).
  size_t give_back() const;
  void take_back() const;
  size_t bytes() const { return storage_.size(); }

 private:
  Buffer storage_;
  std::vector<KvLayer> layers_;
};

// Host memory for whole blocks, in the layout of KvCache, for what lower tiers of the cache hold.
// Memory that was never written to is not resident.
class HostBlocks {
 public:
  HostBlocks() = default;
  // Allocates blocks for a cache on `device`. A block has room for `parts` blocks of `spec`, one
  // after the other: of each rank of a group, whose spec this is.
  HostBlocks(const ModelSpec& spec, int num_blocks, int block_size, const KvFormat& format,
             Device device = {}, int parts = 1);
  // Returns the part `index` of `of` equal ones of every block. This object owns the memory.
  HostBlocks part(int index, int of) const;
  int num_blocks() const { return num_blocks_; }
  size_t block_bytes() const { return block_bytes_; }
  std::span<std::byte> block(int host) const;
  // `layers` are all layers of a KvCache of the same spec, block size and format. A save is done in
  // order with the operations of `ops`, which computes where they lie; a load is the copy returned.
  void save(Ops& ops, std::span<const KvLayer> layers, int block, int host) const;
  Arrival load(std::span<const KvLayer> layers, int host, int block) const;
  // Lets the system have the memory until a block is written again. The contents are lost. Returns
  // the bytes that left. Not for page-locked memory.
  size_t give_back() const;

 private:
  Tensor view_of(int host) const;

  int num_blocks_ = 0;
  size_t block_bytes_ = 0, stride_ = 0;  // a block's bytes, and those from one to the next
  std::byte* first_ = nullptr;
  Buffer storage_;  // empty where another object owns the memory
};

}  // namespace skiff::model

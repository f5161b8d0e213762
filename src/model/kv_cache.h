// model/kv_cache.h -- the memory of the blocks that block numbers name. The scheduler never
// includes this.
#pragma once
#include <span>
#include <vector>

#include "arch/spec.h"
#include "ops/ops.h"
#include "tensor/memory.h"

namespace skiff::model {

// A block is one piece of memory, [layer][k|v][page_size][kv_heads][head_dim], so that moving it is
// one copy. The keys and the values of a layer are views whose pages lie a whole block apart; each
// page begins on a cache line.
class KvCache {
 public:
  // Returns the bytes of one block over all layers, keys and values.
  static size_t bytes_per_block(const ModelSpec& spec, int block_size, DType dtype);
  KvCache(const ModelSpec& spec, int num_blocks, int block_size, DType dtype, Device device);
  std::span<const KvLayer> layers() const { return layers_; }

 private:
  Buffer storage_;
  std::vector<KvLayer> layers_;
};

// Host memory for whole blocks, in the layout of KvCache, for what lower tiers of the cache hold.
// Memory that was never written to is not resident.
class HostBlocks {
 public:
  HostBlocks() = default;
  // Allocates blocks for a cache on `device`.
  HostBlocks(const ModelSpec& spec, int num_blocks, int block_size, DType dtype,
             Device device = {});
  int num_blocks() const { return num_blocks_; }
  size_t block_bytes() const { return block_bytes_; }
  std::span<std::byte> block(int host) const;
  // `layers` are all layers of a KvCache of the same spec, block size and dtype, where `ops`
  // computes; the copies are done in order with its operations.
  void save(Ops& ops, std::span<const KvLayer> layers, int block, int host) const;
  void load(Ops& ops, std::span<const KvLayer> layers, int host, int block) const;

 private:
  Tensor view_of(int host, DType dtype) const;

  int num_blocks_ = 0;
  size_t block_bytes_ = 0;
  Buffer storage_;
};

}  // namespace skiff::model

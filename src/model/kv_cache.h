// model/kv_cache.h -- the bytes that block numbers stand for. The scheduler never includes this.
#pragma once
#include <span>
#include <vector>

#include "arch/spec.h"
#include "ops/ops.h"
#include "tensor/memory.h"

namespace skiff {

class KvCache {
 public:
  // Bytes of one block over all layers, keys and values.
  static size_t bytes_per_block(const ModelSpec& spec, int block_size, DType dtype);
  KvCache(const ModelSpec& spec, int num_blocks, int block_size, DType dtype, Device device);
  std::span<const KvLayer> layers() const { return layers_; }

 private:
  Buffer storage_;
  std::vector<KvLayer> layers_;
};

// Slots of host memory for whole blocks, for what lower tiers of the cache hold. A slot has the
// keys, then the values, of each layer in turn, without gaps. Memory that was never written to is
// not resident.
class HostBlocks {
 public:
  HostBlocks() = default;
  // For blocks of a cache on `device`.
  HostBlocks(const ModelSpec& spec, int slots, int block_size, DType dtype, Device device = {});
  int slots() const { return slots_; }
  size_t block_bytes() const { return block_bytes_; }
  std::span<std::byte> slot(int i) const;
  // `layers` are of the spec, block size and dtype of this object, where `ops` computes; the copies
  // are done in order with its operations.
  void save(Ops& ops, std::span<const KvLayer> layers, int block, int slot) const;
  void load(Ops& ops, std::span<const KvLayer> layers, int slot, int block) const;

 private:
  int slots_ = 0;
  size_t block_bytes_ = 0;
  Buffer storage_;
};

}  // namespace skiff

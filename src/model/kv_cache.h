// model/kv_cache.h -- the bytes that block numbers stand for. The scheduler never includes this.
#pragma once
#include <span>
#include <vector>

#include "arch/spec.h"
#include "ops/batch.h"
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

}  // namespace skiff

// model/kv_layout.h -- where the parts of a layer lie in a block of the KV cache.
#pragma once
#include <cstddef>

#include "arch/spec.h"
#include "ops/ops.h"

namespace skiff::model {

// Sizes in bytes: the keys, [block_size][kv_heads][head_dim], then as many of the values unless a
// layer has none apart from the keys; then, in a cache whose scales lie in the block, those of the
// keys, [kv_heads][block_size][kv_scales()], and of the values. Each of them begins on a cache
// line.
struct LayerLayout {
  size_t half = 0, scales = 0;  // the sizes of the keys and of their scales
  size_t halves = 0;            // 1 where there are no values apart from the keys

  LayerLayout(const Layer& layer, int block_size, const KvFormat& format);
  size_t bytes() const { return halves * (half + scales); }
};

}  // namespace skiff::model

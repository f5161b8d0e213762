// arch/shard.h -- the part of a model that one rank of a tensor-parallel group computes.
#pragma once
#include "arch/spec.h"
#include "base/result.h"

namespace skiff {

// Which of `total` things (heads, columns of a width, rows of the vocabulary) a rank has.
struct Share {
  int first = 0, count = 0;
  bool operator==(const Share&) const = default;
};
// Equal shares in the order of ranks. Where there are fewer things than ranks, each thing belongs
// to several neighbouring ranks. `total` divides by `size` or the other way round.
Share share_of(int total, int rank, int size);

// The local spec of `rank` among `size` ranks: a Decoder made from it, with its share of the
// weights, computes what all ranks' sums and gathered logits complete. Cut are query heads; key and
// value heads, which are replicated where there are fewer than ranks; the widths of dense, shared
// and routed experts, each of which every rank has a slice of; and the vocabulary of embedding and
// head. What every rank computes whole is the same in each: hidden size, norms, router. A bias
// behind a sum over ranks must be added once: rank 0 alone has Gqa::out_bias, and the bias of
// `down` that Dense::bias speaks of is to be loaded as zeros by all others.
//
// kInvalid, with the number that does not divide and the sizes that fit, if there is one. Size 1
// always fits and changes nothing.
Result<ModelSpec> shard(const ModelSpec& spec, int rank, int size);

}  // namespace skiff

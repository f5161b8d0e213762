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
// Shares in the order of ranks of which the first may have one thing more than the last. There are
// at least as many things as ranks.
Share balanced_share_of(int total, int rank, int size);

// Makes ranks share the routed experts of all mixtures by number (Moe::kWhole) instead of by width.
// Experts that are always on become shared ones, of which every rank has a slice.
void deal_experts_whole(ModelSpec& spec);
bool deals_experts_whole(const ModelSpec& spec);
// Makes the experts that are always on, which are computed as members of the stack, a feed-forward
// block of their own, so that they can have another format than the routed ones, or another cut.
void separate_shared_experts(ModelSpec& spec);

// The local spec of `rank` among `size` ranks: a Decoder made from it, with its share of the
// weights, computes what all ranks' sums and gathered logits complete. Cut are query heads; key and
// value heads, which are replicated where there are fewer than ranks; and the widths of dense,
// shared and routed experts, each of which every rank has a slice of. Routed experts of Moe::kWhole
// are dealt out by number instead, in balanced shares, and Router::before and behind say which a
// rank has: every rank routes among all of them and computes its own. The vocabulary's rows of the
// head are cut too, but `vocab` stays the whole: logits are gathered, and every rank has the whole
// embedding. What every rank computes whole is the same in each: hidden size, norms, router, the
// latent vectors of Mla and their cache, a head that scores classes. A bias behind a sum over ranks
// must be added once: rank 0 alone has Gqa::out_bias, and the bias of `down` that Dense::bias
// speaks of is to be loaded as zeros by all others.
//
// kInvalid, with the number that does not divide and the sizes that fit, if there is one. Size 1
// always fits and changes nothing.
Result<ModelSpec> shard(const ModelSpec& spec, int rank, int size);

// The local spec of `replica` among `replicas` that share the routed experts of all mixtures, which
// are Moe::kWhole: a balanced share of those that `spec` has, which computes the rows of
// all replicas (Moe::sharers), and all else as in `spec`, which may be that of a rank. Then the
// ranks of the same number of all replicas share that rank's experts. kInvalid, with the layer, if
// there are fewer experts than replicas. One replica changes nothing.
Result<ModelSpec> share_experts(const ModelSpec& spec, int replica, int replicas);

}  // namespace skiff

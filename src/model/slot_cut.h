// model/slot_cut.h -- which part of a model's weights one rank of a tensor-parallel group loads.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "arch/spec.h"
#include "base/result.h"
#include "model/slots.h"

namespace skiff::model {

// Names a rank among `size`; one of one has everything. It may be one of `sharers` replicas, the
// one with the number `sharer`, each of which has some of the routed experts for all.
struct RankOf {
  int rank = 0, size = 1;
  int sharer = 0, sharers = 1;

  bool first() const { return rank == 0 && sharer == 0; }
  bool whole() const { return size == 1 && sharers == 1; }
};

// Returns the spec of that rank's part of the model: shard(), then share_experts(). kInvalid where
// these say so.
Result<ModelSpec> spec_of(const ModelSpec& whole, const RankOf& part);

// The part of a slot of the whole model that the slot of a rank has: some of its rows, and of each
// some columns side by side.
struct SlotCut {
  struct Rows {
    int64_t first = 0, count = 0;
  };
  Slot whole;              // the slot as the checkpoint fills it
  std::vector<Rows> rows;  // among `whole` as [experts * out, in], in the order of the rank's slot
  int64_t col = 0;         // the first column
  // The bias is to be zeros here: the outputs are summed over ranks, and rank 0 has added it.
  bool no_bias = false;
};

// Returns the part of each slot of `spec` that the slot in the same place of `local` has, which are
// slots_of(spec_of(spec, at), at.size). Stacks of experts say where they begin
// (Slot::first); all else is cut by its sizes alone: a part that is 1 / n of the whole is number
// rank * n / size of n, so that what there are fewer of than ranks, such as KV heads, belongs to
// neighbouring ranks.
std::vector<SlotCut> cut_slots(const ModelSpec& spec, const std::vector<Slot>& local,
                               const RankOf& at);

// Calls work(row, count, at) for the rows of `whole` that rows [first, first + rows) of the rank's
// slot are; `at` counts from `first`.
template <class Work>
void for_each_rows(const SlotCut& cut, int64_t first, int64_t rows, Work work) {
  int64_t begin = 0;  // where the run begins among the rows of the rank's slot
  for (const SlotCut::Rows& run : cut.rows) {
    const int64_t from = std::max(first, begin), to = std::min(first + rows, begin + run.count);
    if (from < to) work(run.first + from - begin, to - from, from - first);
    begin += run.count;
  }
}

}  // namespace skiff::model

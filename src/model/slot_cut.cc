#include "model/slot_cut.h"

#include "arch/shard.h"
#include "base/check.h"

namespace skiff::model {
namespace {

// Returns where this rank's `mine` of `all` things begin.
int64_t first_of(int64_t all, int64_t mine, const RankOf& at) {
  SKIFF_CHECK(mine > 0 && all % mine == 0, "{} of {}", mine, all);
  const int64_t shares = all / mine;
  return at.rank * shares / at.size * mine;
}

SlotCut cut_slot_of(const Slot& whole, const Slot& local, const RankOf& at) {
  SKIFF_CHECK(whole.name == local.name && whole.layer == local.layer, "{} and {}",
              describe_slot(whole), describe_slot(local));
  SKIFF_CHECK_EQ(whole.parts.size(), local.parts.size());
  SlotCut cut{.whole = whole, .rows = {}};
  cut.col = first_of(whole.in, local.in, at);
  cut.no_bias = whole.in != local.in && at.rank > 0;
  const int64_t matrices = std::max<int64_t>(local.experts, 1);
  const int64_t first = local.heads ? first_of(whole.experts, matrices, at) : local.first;
  for (int64_t e = first; e < first + matrices; ++e) {
    int64_t begin = e * whole.out;
    for (size_t i = 0; i < whole.parts.size(); ++i) {
      const int64_t all = whole.parts[i], mine = local.parts[i];
      cut.rows.push_back({begin + first_of(all, mine, at), mine});
      begin += all;
    }
  }
  return cut;
}

}  // namespace

Result<ModelSpec> spec_of(const ModelSpec& whole, const RankOf& part) {
  const auto local = shard(whole, part.rank, part.size);
  return local ? share_experts(*local, part.sharer, part.sharers) : local;
}

std::vector<SlotCut> cut_slots(const ModelSpec& spec, const std::vector<Slot>& local,
                               const RankOf& at) {
  const std::vector<Slot> whole = slots_of(spec);
  SKIFF_CHECK_EQ(whole.size(), local.size());
  std::vector<SlotCut> cuts;
  for (size_t i = 0; i < whole.size(); ++i) cuts.push_back(cut_slot_of(whole[i], local[i], at));
  return cuts;
}

}  // namespace skiff::model

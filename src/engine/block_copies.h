// engine/block_copies.h -- carries out the saves and loads of step plans, and has steps wait for
// loads that run beside them.
#pragma once
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "message/step.h"
#include "model/kv_cache.h"
#include "ops/ops.h"

namespace skiff::engine {

// Driven by the thread that drives `ops`.
class BlockCopies {
 public:
  // The copies of one step.
  struct Begun {
    std::optional<std::pair<uint64_t, uint64_t>> saves;  // stamps before and after them
    std::optional<CopiesBeside> loads;
    bool beside = false;  // its rows do not wait for its loads
  };

  // `host`, which plans with copies require, `kv` and `ops` must outlive this object.
  BlockCopies(model::HostBlocks* host, std::span<const KvLayer> kv, Ops& ops);
  // Starts the copies of a plan, and has operations that follow, which are its rows, wait for those
  // loads of this and of earlier plans that they may meet.
  Begun start(const StepPlan& plan);
  // Waits for the copies of a step whose operations are complete, and adds the time that they took
  // to what the result says of its own. Called in the order of starts.
  void finish(const Begun& begun, StepResult& result);

 private:
  void save(const StepPlan& plan, Begun& begun);
  void load(const StepPlan& plan, Begun& begun);
  uint64_t loads_of(BlockId block) const { return loaded_by_[static_cast<size_t>(block)]; }
  void wait_for(uint64_t number);

  model::HostBlocks* host_;
  std::span<const KvLayer> kv_;
  Ops& ops_;
  std::vector<uint64_t> loaded_by_;  // by block: the number of the copies that loaded it last
  std::vector<Arrival> list_;        // the loads of start()
  // The number of the last loads, and up to which operations that follow come behind them.
  uint64_t last_ = 0, ordered_ = 0;
};

}  // namespace skiff::engine

// engine/recorded_forwards.h -- forward passes that Ops::replay() records.
#pragma once
#include <functional>
#include <map>
#include <optional>

#include "model/decoder.h"
#include "ops/ops.h"

namespace skiff::engine {

// A recorded pass writes to the addresses that it was recorded with, so its outputs lie in the same
// places at each replay, which does not call `work`.
class RecordedForwards {
 public:
  // Calls Ops::replay(); returns the outputs of `work`, or of the recording.
  model::Forward replay(Ops& ops, const std::optional<ReplayKey>& key,
                        const std::function<model::Forward()>& work) {
    model::Forward out;
    ops.replay(key, [&] { out = work(); });
    if (!key) return out;
    model::Forward& recorded = outputs_[*key];
    if (out.logits) recorded = out;
    return recorded;
  }

 private:
  std::map<ReplayKey, model::Forward> outputs_;
};

}  // namespace skiff::engine

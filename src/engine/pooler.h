// engine/pooler.h -- one vector for each sequence that is pooled: its rows behind the last norm, or
// what the head makes of the last one, are copied to the host as steps compute them and are put
// together there. Sums are taken in double in the order of positions, so how a prompt was cut into
// steps does not show.
#pragma once
#include <vector>

#include "message/step.h"
#include "model/decoder.h"
#include "ops/pinned_arena.h"

namespace skiff::engine {

// Rows of one span on their way to the host.
struct PooledRows {
  size_t span = 0;
  int slot = 0;
  Tensor rows;        // [n, hidden] act or [1, columns] f32, in host memory
  bool last = false;  // the sequence has no further rows
};

// What a step in flight pools, and the memory for it. A step that pools the mean copies all its
// rows of such sequences: at most max_rows * hidden activations.
struct PooledStep {
  PinnedArena memory;
  std::vector<PooledRows> pieces;
};

// Driven by the thread that drives `ops`.
class Pooler {
 public:
  // Returns the most bytes of host memory that two steps in flight take where means are pooled.
  static size_t memory_bytes(int max_rows, int64_t hidden, DType act) {
    return 2 * byte_size(act, max_rows * hidden);
  }
  Pooler(int max_slots, Ops& ops) : ops_(ops), slots_(static_cast<size_t>(max_slots)) {}

  // Starts a slot or starts it again: what it has gathered is forgotten. Called for every slot that
  // is opened, also for those that are not pooled.
  void open(const OpenSlot& slot);
  // Starts the copies of a step. `batch` is the step's; row i of `logits` belongs to entry i of
  // `logit_spans`, beginning at `first_logit`.
  void start(const StepPlan& plan, const RaggedBatch& batch, const model::Forward& forward,
             int first_logit, PooledStep& step);
  // Takes the copies of a step, which must be complete, and puts vectors that are whole into the
  // result. Steps are finished in the order in which they were started.
  void finish(PooledStep& step, size_t spans, StepResult& result);

 private:
  struct Slot {
    Pooling pooling;
    std::vector<double> sum;
    int rows = 0;  // rows that were gathered
  };

  Tensor to_host(Tensor rows, PinnedArena& memory);
  Tensor pick(Tensor logits, const std::vector<int32_t>& columns, PinnedArena& memory);
  static void gather(Tensor rows, Slot& slot);
  static std::vector<float> vector_of(const Slot& slot);

  Ops& ops_;
  std::vector<Slot> slots_;
};

}  // namespace skiff::engine

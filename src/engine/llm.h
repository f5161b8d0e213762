// engine/llm.h -- a loaded model with its engine thread: what the server and the offline commands
// hold. Tokens in, events out; text lives elsewhere.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "engine/step_tally.h"
#include "kv/tiers.h"
#include "message/request.h"
#include "model/loader.h"
#include "model/memory_plan.h"

namespace skiff {

struct EngineConfig {
  std::string model;  // a folder
  std::string config_name = "config.json";
  std::string device = "auto";  // auto (cuda where there is one, else cpu) | cpu | cuda | cuda:N |
                                // reference
  bool graphs = true;           // steps of decodes are recorded and replayed, where that pays
  bool fuse_single_row = true;  // CudaOptions::gather, for models without experts
  std::vector<int> capture_sizes;  // their batch sizes; empty: the usual ones
  DType dtype = DType::kF32;       // compute: kF32 or kBF16
  LoadFormat load_format = LoadFormat::kAuto;
  uint64_t seed = 0;  // of dummy weights
  int threads = 0;    // 0: one per processor that this process may use
  int max_num_seqs = 8;
  int max_num_batched_tokens = 0;  // 0: the smaller of 8192 and max_model_len, at least 512
                                   // (not chunked: max_model_len + max_num_seqs)
  int max_model_len = 0;           // 0: what the model supports, at most 32768
  int block_size = 64;
  int num_blocks_override = 0;  // 0: from the memory plan
  double memory_utilization = 0.9;
  bool prefix_caching = true;
  bool chunked_prefill = true;  // false: a prompt is computed in one step, if the
                                // batched tokens allow (see sched/scheduler.h)
  int priority_ageing = 1000;   // see sched/policy.h
  int max_partial_prefills = 0, max_long_partial_prefills = 1;         // the same
  double reserve_blocks = 16, reserve_decay = 0.025, reserve_min = 0;  // the same
  int long_prompt = 0;       // tokens above which a prompt is long; 0: 4 % of the context
  int steps_in_flight = 2;   // 1: wait for each step
  double swap_space_gb = 0;  // host memory for blocks that the device has no room for
  std::string storage_path;  // a folder for blocks that survive a restart; empty: none
  double storage_gb = 0;     // most bytes of it
  double storage_wait = 2;   // seconds that a block of it is waited for before it is computed
  std::string version;       // of the engine: blocks of another are not used
  bool quiet = false;        // no progress bar, plan or ledger on stderr
  // The engine cannot go on, as when its device is lost: called on its thread with the reason, and
  // not expected to return. Null: the reason is logged and the process ends with code 1.
  std::function<void(const std::string& why)> failed;
  Progress progress = nullptr;  // bytes of weights, in place of the bar; on the thread of start()
};

// A snapshot, for /metrics and /health. Counters only grow.
struct EngineStats {
  int running = 0, waiting = 0;
  int blocks_total = 0, blocks_free = 0;  // free counts what eviction could free
  int blocks_unused = 0;                  // of those, the ones that hold nothing
  uint64_t steps = 0, prompt_tokens = 0, cached_tokens = 0, generation_tokens = 0, preemptions = 0;
  StepTally tally;                    // of all steps
  TierStats tiers;                    // of lower tiers of the prefix cache; 0 without them
  double seconds_since_progress = 0;  // since a step was committed, while work waits; else 0
};

// submit, cancel, stats and stop may be called from any thread.
class Llm {
 public:
  using Sink = std::function<void(std::vector<Event>)>;  // on the engine thread; must be quick

  // Loads, plans memory, starts the engine thread. Prints the memory plan, progress and a time
  // ledger unless quiet. Throws LoadError.
  static std::unique_ptr<Llm> start(const EngineConfig& config, Sink sink);
  virtual ~Llm() = default;

  virtual const ModelConfig& model() const = 0;
  virtual const EngineConfig& config() const = 0;  // every 0 resolved
  virtual const MemoryPlan& memory() const = 0;
  virtual bool batch_invariant() const = 0;  // see Ops
  // Never blocks. A sequence that cannot run gets an Event with kExhausted and the reason.
  virtual void submit(NewSequence sequence) = 0;
  virtual void cancel(SeqId id) = 0;
  virtual EngineStats stats() const = 0;
  // Finishes (drain) or cancels what runs, then ends the engine thread. Idempotent; not from the
  // sink. What is submitted after it is refused, on the thread of submit().
  virtual void stop(bool drain) = 0;
};

}  // namespace skiff

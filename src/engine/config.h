// engine/config.h -- the options that a user sets. engine/resolve.h turns them and the model into a
// Resolved; later code reads only that.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "draft/settings.h"
#include "message/logprobs_mode.h"
#include "model/loader.h"
#include "nodes/settings.h"
#include "peer/settings.h"
#include "sched/policy.h"

namespace skiff::engine {

struct EngineConfig {
  std::string model;  // folder of the model
  std::string config_name = "config.json";
  std::string device =
      "auto";          // auto (cuda if possible, else cpu) | cpu | cuda | cuda:N | reference
  bool graphs = true;  // record decode steps and replay them where that is faster
  bool fuse_single_row = true;     // CudaOptions::gather, for models without experts
  bool batch_invariant = false;    // CudaOptions::batch_invariant; host backends always are
  std::vector<int> capture_sizes;  // batch sizes of recorded steps; empty: the default sizes
  std::optional<DType> dtype;      // kF32 or kBF16; none: bfloat16 for a checkpoint of 16-bit
                                   // floats, else float32
  std::string quantization, quantization_config;  // see model::choose_schemes()
  bool kv_token_scales = false;   // an 8-bit KV cache never has the scales of the checkpoint
  model::PoolingChoice pooling;   // whether the model is pooled instead of generating
  std::optional<DType> kv_dtype;  // elements of the KV cache: kF32, kBF16, kI8, kF8E4M3 or kU4;
                                  // none: those of the activations
  model::LoadFormat load_format = model::LoadFormat::kAuto;
  uint64_t seed = 0;        // seed of dummy weights
  int tensor_parallel = 1;  // ranks that a model is cut among, as threads of the process of a node
  nodes::Settings nodes;    // the nodes that share out the ranks
  bool expert_parallel = false;  // each rank or replica has some of the routed experts whole
  int threads = 0;       // 0: one per processor that this process may use; replicas share them
  int replicas = 1;      // engines with this model in this process (engine/replicas.h)
  int max_num_seqs = 0;  // 0: on the CPU 8; on a device as many as its memory suggests, at most 256
  int max_num_batched_tokens = 0;  // 0: the smaller of 8192 and max_model_len, at least 512
                                   // (not chunked: max_model_len + max_num_seqs)
  int max_model_len = 0;           // 0: what the model supports, at most 32768
  int block_size = 64;
  int num_blocks_override = 0;  // 0: from the memory plan
  double memory_utilization = 0.9;
  bool prefix_caching = true;
  bool chunked_prefill = true;  // false: a prompt is computed in one step, if the
                                // batched tokens allow (see sched/scheduler.h)
  // What the scheduler prefers. resolve() fills in row_context, and long_prompt where it is 0 and
  // what a step costs is not measured.
  sched::Policy policy;
  int steps_in_flight = 2;  // 2: a step is planned while the previous one computes; 1: not
  LogprobsMode logprobs = LogprobsMode::kRawLogprobs;  // what is reported of drawn tokens
  std::optional<draft::Settings> speculation;          // how tokens are drafted; none: they are not
  double swap_space_gb = 0;  // GB of host memory for blocks that the device has no room for
  std::string storage_path;  // folder for blocks that survive a restart; empty: none
  double storage_gb = 0;     // maximum size of its file, in GB
  double storage_wait = 2;   // seconds to wait for a block of the file before computing it
  peer::Settings peers;      // which blocks it has from, or for, other instances
  std::string version;       // engine version; blocks of another version are not used
  bool quiet = false;        // no progress bar, plan or ledger on stderr
  // Called on the engine's thread, with the reason, when the engine cannot go on, as when its
  // device is lost; not expected to return. Null: the reason is logged and the process ends with
  // code 1.
  std::function<void(const std::string& why)> failed;
  Progress progress = nullptr;  // called on start()'s thread with the loaded bytes of weights;
                                // replaces the bar
};

}  // namespace skiff::engine

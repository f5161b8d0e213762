// engine/resolved.h -- how a model runs in this process. resolve() makes it once from the user's
// options and the model; the memory plan, backend, cache, scheduler and server read it and never
// the options. No value stands for "automatic".
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "draft/settings.h"
#include "engine/drafter_source.h"
#include "message/logprobs_mode.h"
#include "model/loader.h"
#include "nodes/settings.h"
#include "peer/settings.h"
#include "sched/scheduler.h"
#include "weights/format.h"

namespace skiff::engine {

// The backend and, for CUDA, the device that it computes on.
struct ComputeDevice {
  enum Kind { kReference, kCpu, kCuda };
  Kind kind = kCpu;
  int8_t index = 0;  // number of the CUDA device

  // Returns the memory that its tensors lie in.
  Device memory() const { return kind == kCuda ? Device{Device::kCuda, index} : Device{}; }
  bool operator==(const ComputeDevice&) const = default;
};

// Returns "reference", "cpu" or "cuda:N".
inline std::string name(const ComputeDevice& device) {
  if (device.kind == ComputeDevice::kCuda) return "cuda:" + std::to_string(device.index);
  return device.kind == ComputeDevice::kReference ? "reference" : "cpu";
}

struct ModelSource {
  std::string folder, config_name;
  model::LoadFormat format = model::LoadFormat::kAuto;
  uint64_t seed = 0;  // seed of dummy weights
};

// The blocks of keys and values, on the device and in the tiers below it.
struct CacheSettings {
  int block_size = 64;
  std::optional<int> num_blocks;  // empty: as many as the memory plan finds room for
  bool prefix_caching = true;
  bool spill = false;          // blocks evicted from the device stay in host memory
  int host_slots = 0;          // blocks of host memory; 0: no lower tiers
  std::string storage_path;    // folder of the cache's file; empty: no file
  uint64_t storage_bytes = 0;  // maximum size of the file
  double storage_wait = 2;     // seconds to wait for a block of the file
  peer::Settings peers;        // as asked for
  int shelf_blocks = 0;        // blocks that the prefill side keeps for others; else 0
  std::string version;         // engine version; blocks of another version are not used
};

struct Resolved {
  ModelSource model;
  ComputeDevice device;
  int ranks = 1;                 // the model is cut among so many (arch/shard.h)
  nodes::Settings nodes;         // the nodes that hold them, and which of them this one is
  bool whole_experts = false;    // ranks, or replicas, have some of the routed experts whole
                                 // (Moe::kWhole)
  int threads = 1;               // threads of the CPU backend; of all ranks here, or of one where a
                                 // Rank has these settings
  bool graphs = false;           // decode steps are recorded and replayed if the device supports it
  bool gather = false;           // CudaOptions::gather
  bool batch_invariant = false;  // CudaOptions::batch_invariant
  Precision precision;
  model::SchemeChoice schemes;            // how weights are quantized while they are loaded
  std::vector<model::StoredForm> stored;  // the slots' forms in a quantized checkpoint, or empty
  sched::Limits limits;                   // includes the scheduler's policy
  CacheSettings cache;
  std::vector<int> captures;  // batch sizes of recorded decode steps, rising; the last is
                              // limits.max_seqs, unless that is above 1024. Empty: none is recorded
  // Start-up measures what a step costs: prompts may be cut, and steps have an aim; or tokens are
  // drafted. limits.policy lacks `cost` until then, and `long_prompt` if it follows from the cost.
  bool measures_steps = false;
  int steps_in_flight = 2;
  LogprobsMode logprobs = LogprobsMode::kRawLogprobs;  // what is reported of drawn tokens
  std::optional<draft::Settings> speculation;          // how tokens are drafted; none: they are not
  std::optional<DrafterSource> drafter;                // the model that drafts, if one does
  double memory_utilization = 0.9;                     // see memory_request()
  int replicas = 1;  // engines in this process (engine/replicas.h), of which this is one; what is
                     // said above is each one's
  int sharers = 1;   // replicas that share the routed experts by number: all of them, or 1
  int sharer = 0;    // which of them has these settings

  // Each node has as many ranks; those here are [first_rank(), first_rank() + ranks_here()).
  int ranks_here() const { return ranks / nodes.nodes; }
  int first_rank() const { return nodes.node * ranks_here(); }
};

}  // namespace skiff::engine

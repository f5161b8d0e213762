// model/memory_plan.h -- how much memory a model will take, computed before anything is loaded.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "arch/spec.h"
#include "model/schemes.h"
#include "model/slots.h"
#include "ops/ops.h"
#include "tensor/tensor.h"
#include "weights/format.h"

namespace skiff::model {

struct MemoryRequest {
  const Ops& ops;  // the backend to plan for; it states the sizes of weights and activations
  Precision precision;
  SchemeChoice schemes = {};            // how weights are quantized
  std::vector<StoredForm> stored = {};  // the forms of all slots in a quantized checkpoint
  int ranks = 1;                        // the plan is that of one, with its part of the weights
  int block_size = 64;
  int max_rows = 8192;  // rows of one step
  int max_logit_rows = 256;
  int max_seqs = 8;
  int max_model_len = 2048;
  int num_blocks_override = 0;  // > 0: exactly this many blocks
  int host_slots = 0;           // blocks in the host tier of the prefix cache
  size_t scratch = 0;           // bytes that backend and sampler work with besides activations
  // A model that drafts tokens for this one, if there is one: its layers are in the blocks, too.
  struct Drafter {
    ModelSpec spec;                  // the rank's part, or the whole model
    SchemeChoice schemes;            // as above
    std::vector<StoredForm> stored;  // as above
    int ranks = 1;                   // among which it is cut
    size_t work = 0;                 // bytes that it works with
  };
  std::optional<Drafter> drafter = {};
  bool on_host = true;   // the device is the host, so that its memory holds the host tier too
  int replicas = 1;      // engines that share this memory and one copy of the weights
  size_t available = 0;  // bytes of the device's memory that this process may use
  std::string about;     // where `available` comes from, for the table; may be empty
};

// The weights are there once; everything else, `kv` and `blocks` too, is what each replica has.
struct MemoryPlan {
  size_t parameters = 0;                                                   // number of parameters
  size_t weights = 0, activations = 0, scratch = 0, kv_block = 0, kv = 0;  // bytes
  size_t drafter = 0;  // weights of the model that drafts
  size_t available = 0;
  int blocks = 0, host_slots = 0;
  size_t host() const { return static_cast<size_t>(host_slots) * kv_block; }
  bool on_host = true;
  int replicas = 1;
  std::string about;
  size_t each() const { return activations + scratch + kv + (on_host ? host() : 0); }
  size_t total() const { return weights + drafter + static_cast<size_t>(replicas) * each(); }
  std::string table() const;  // a few aligned lines for people
};

// Plans enough blocks for max_seqs sequences of max_model_len if memory allows, and at least enough
// for one. Throws a LoadError with the table and the flags to change where that does not fit.
MemoryPlan plan_memory(const ModelSpec& spec, const MemoryRequest& request);

// Returns the number of parameters of a model, or of the part of one of `ranks` ranks.
size_t parameter_count(const ModelSpec& spec, int ranks = 1);
// Returns the mean bytes of a parameter of the linear layers, scales included, in plain packing.
// Quantized weights of a checkpoint count as they are stored.
double bytes_per_weight(const ModelSpec& spec, const Precision& precision,
                        const SchemeChoice& schemes, std::span<const StoredForm> stored = {});
// Returns the bytes of memory that this process could still take: MemAvailable, bounded by its
// cgroup.
size_t available_memory();

}  // namespace skiff::model

// engine/resolve_checks.h -- the parts of resolve() that refuse options. Every function throws
// LoadError, whose message names the flag and its value, or does nothing.
#pragma once
#include <string>
#include <string_view>

#include "engine/config.h"
#include "engine/resolved.h"

namespace skiff::engine {

// Refuses a value that is not from `low` to `high`, both included.
void need_range(const char* flag, int value, int low, int high);

// Refuses values out of range, and options that do not go together, as far as neither model nor
// machine matter.
void check_ranges(const EngineConfig& config);

// Refuses more replicas than there are devices, replicas on a device that was named by its number,
// and replicas of a server that only prefills or decodes.
void check_replicas(const EngineConfig& config, const ComputeDevice& device);

// Returns whether replicas share the routed experts of `spec`, which read_model() has dealt out.
bool shares_experts(const EngineConfig& config, const ModelSpec& spec);

// Refuses replicas that share experts with what cannot be had with them yet: several ranks each on
// CUDA, more replicas there than a group of devices has, and more of them than there are experts,
// or than a rank of each has.
void check_sharing(const EngineConfig& config, const ModelSpec& spec, const ComputeDevice& device);

// Refuses nodes that do not divide the ranks, or that would have to share out what one process
// keeps whole: replicas, the cache's file, blocks for other instances.
void check_nodes(const EngineConfig& config);

// Refuses a number of ranks among which the model cannot be cut, more ranks here than there are
// CUDA devices, and ranks on the devices of several nodes where there is no NCCL. Requires that the
// nodes divide the ranks.
void check_ranks(const EngineConfig& config, const ModelSpec& spec, const ComputeDevice& device);

// Refuses drafts for a model that is pooled, a method that does not exist, and settings of a method
// that are out of range.
void check_speculation(const EngineConfig& config, const model::ModelConfig& model);

// Refuses a number of ranks for what drafts that is neither 1 nor that of the served model, and 1
// for a module, which is cut like the model.
void check_drafter(const draft::Settings& settings, int ranks);

// Refuses to quantize what is quantized already, so that values are not rounded twice. Allowed are
// 8-bit floats with scales, as DeepSeek-V3 was published: there is no checkpoint of more bits to
// start from. `asked` names the option.
void check_schemes(const model::SchemeChoice& schemes, const model::Quantization& quantization,
                   std::string_view asked = "--quantization");

}  // namespace skiff::engine

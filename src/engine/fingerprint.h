// engine/fingerprint.h -- what keys and values depend on besides the tokens.
#pragma once
#include "engine/llm.h"
#include "kv/block_key.h"

namespace skiff {

// Of a resolved config: engine version, device and its instruction set, dtype, block size, the
// model's configuration, and its weights by name, size, time of change and samples of their bytes
// (a page in every MiB). Weights that differ elsewhere only, with the same times, look alike.
// Throws LoadError.
BlockKey fingerprint_of(const EngineConfig& config);

}  // namespace skiff

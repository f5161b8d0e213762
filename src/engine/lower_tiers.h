// engine/lower_tiers.h -- the tiers of the cache below the device that this process owns: blocks of
// host memory, and the file.
#pragma once
#include <memory>

#include "engine/resolved.h"
#include "engine/start_log.h"
#include "kv/tiers.h"
#include "model/block_form.h"
#include "model/kv_cache.h"
#include "peer/wire.h"
#include "store/block_store.h"

namespace skiff::engine {

struct LowerTiers {
  kv::TierConfig config;
  kv::BlockSources sources;  // the file, if there is one
  peer::Facts facts;         // what other instances must agree on; empty if there are none
  model::HostBlocks host;
  // The form in which other instances get blocks; null if there are none.
  std::shared_ptr<const model::BlockForm> form;
  std::unique_ptr<store::BlockStore> store;  // null if there is no file
};

// Returns empty tiers if `resolved` has no host slots. A block of `host` has the parts of all ranks
// of the model that `spec` describes. The blocks are stored under the name of the arithmetic of
// `ops`, which computes them. Throws LoadError.
LowerTiers open_lower_tiers(const Resolved& resolved, const ModelSpec& spec, const Ops& ops,
                            StartLog& log);

}  // namespace skiff::engine

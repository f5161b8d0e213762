#include "engine/lower_tiers.h"

#include "arch/shard.h"
#include "base/log.h"
#include "base/random.h"
#include "engine/fingerprint.h"
#include "kv/record_source.h"

namespace skiff::engine {
namespace {

std::unique_ptr<store::BlockStore> open_store(const CacheSettings& cache,
                                              const kv::BlockKey& fingerprint, size_t block_bytes,
                                              bool quiet) {
  if (cache.storage_path.empty()) return nullptr;
  auto store = store::BlockStore::open({.dir = cache.storage_path,
                                        .max_bytes = cache.storage_bytes,
                                        .payload = block_bytes,
                                        .block_size = cache.block_size,
                                        .fingerprint = fingerprint});
  if (store && !quiet)
    spdlog::info("{}: {} of at most {} blocks of {} tokens are there", cache.storage_path,
                 store->found().size(), store->num_records(), cache.block_size);
  return store;
}

std::shared_ptr<const model::BlockForm> form_of(const Resolved& resolved, const ModelSpec& spec,
                                                const ModelSpec& local) {
  return std::make_shared<const model::BlockForm>(whole_cached_spec(spec, resolved.drafter), local,
                                                  resolved.ranks, resolved.cache.block_size,
                                                  resolved.precision.kv);
}

}  // namespace

LowerTiers open_lower_tiers(const Resolved& resolved, const ModelSpec& spec, const Ops& ops,
                            StartLog& log) {
  const CacheSettings& cache = resolved.cache;
  if (cache.host_slots == 0) return {};
  const KvFormat& kv = resolved.precision.kv;
  const Arithmetic arithmetic{.backend = ops.arithmetic(), .build = std::string(sources_digest())};
  const ModelSpec local = cached_spec(*shard(spec, 0, resolved.ranks), resolved.drafter);
  const size_t block_bytes = model::KvCache::bytes_per_block(local, cache.block_size, kv) *
                             static_cast<size_t>(resolved.ranks_here());
  const bool shared = cache.peers.role != peer::Role::kMixed;
  LowerTiers tiers{.config = {.spill = cache.spill}};
  if (shared) {
    tiers.form = form_of(resolved, spec, local);
    tiers.facts = shared_facts(resolved, arithmetic, tiers.form->whole_bytes());
  }
  const kv::BlockKey fingerprint =
      shared ? fingerprint_of(tiers.facts) : fingerprint_of(resolved, arithmetic);
  tiers.config.fingerprint.assign(fingerprint.begin(), fingerprint.end());
  // Blocks lie in the file as this group has them.
  const kv::BlockKey of_file = shared ? fingerprint_of(tiers.facts, resolved) : fingerprint;
  tiers.store = open_store(cache, of_file, block_bytes, log.quiet);
  if (tiers.store)
    tiers.sources.push_back(std::make_unique<kv::RecordSource>(
        tiers.store->num_records(), random_seed(), tiers.store->found()));
  if (tiers.store || cache.spill || shared) {
    tiers.config.host_blocks = cache.host_slots;
    tiers.host = model::HostBlocks(local, cache.host_slots, cache.block_size, kv, ops.device(),
                                   resolved.ranks_here());
  }
  log.ledger.close("tiers");
  return tiers;
}

}  // namespace skiff::engine

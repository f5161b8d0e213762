// kv/record_source.h -- the index of the cache's file (store/block_store.h), or of anything else
// with a fixed number of records of one size.
#pragma once
#include <span>

#include "kv/block_source.h"
#include "kv/place_index.h"

namespace skiff::kv {

// A record that was in the file at the start.
struct StoredBlock {
  int record = 0;
  BlockKey key{};
};

// Wants every block that it does not have; the least recently used record is overwritten.
class RecordSource final : public BlockSource {
 public:
  RecordSource(int num_records, uint64_t seed, std::span<const StoredBlock> oldest_first = {});

  bool has(const BlockKey& key) const override;
  int begin_fetch(const BlockKey& key) override;
  void end_fetch(int record, const TierDone& answer) override;
  bool wants(const BlockKey& key) const override;
  int begin_store(const BlockKey& key) override;
  void end_store(int record, bool ok) override;

 private:
  PlaceIndex records_;
};

}  // namespace skiff::kv

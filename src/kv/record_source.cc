#include "kv/record_source.h"

namespace skiff::kv {

RecordSource::RecordSource(int num_records, uint64_t seed,
                           std::span<const StoredBlock> oldest_first)
    : records_(num_records, seed) {
  for (const StoredBlock& stored : oldest_first) {
    if (const int old = records_.find(stored.key); old != kNone) records_.erase(old);
    records_.assign(stored.record, stored.key);
  }
}

bool RecordSource::has(const BlockKey& key) const {
  const int record = records_.find(key);
  return record != kNone && records_.ready(record);
}

int RecordSource::begin_fetch(const BlockKey& key) {
  const int record = records_.find(key);
  records_.pin(record);
  return record;
}

// A late answer does not mean that the record is bad.
void RecordSource::end_fetch(int record, const TierDone& answer) {
  if (answer.ok)
    records_.touch(record);
  else if (!answer.late)
    records_.erase(record);
  records_.unpin(record);
}

bool RecordSource::wants(const BlockKey& key) const {
  return records_.size() > 0 && records_.find(key) == kNone;
}

int RecordSource::begin_store(const BlockKey& key) { return records_.put(key); }

void RecordSource::end_store(int record, bool ok) {
  if (ok)
    records_.set_ready(record);
  else
    records_.erase(record);
  records_.unpin(record);
}

}  // namespace skiff::kv

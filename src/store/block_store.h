// store/block_store.h -- KV blocks in one file of a directory: the bytes behind a RecordSource. It
// is only a cache: a record that is missing, torn, foreign or damaged is a miss.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kv/record_source.h"
#include "kv/tiers.h"

namespace skiff::store {

struct StoreOptions {
  std::string dir;
  uint64_t max_bytes = 0;      // the largest size of the file
  size_t payload = 0;          // bytes of one block
  int block_size = 0;          // tokens of one block
  kv::BlockKey fingerprint{};  // the hash of all that the bytes depend on besides the key
};

// Layout, little-endian: a page with the header (magic, version, geometry, fingerprint, XXH3-128),
// then records of one size, each on a page boundary: magic, XXH3-128 of the record's head, sequence
// number, key, XXH3-128 of the payload, tokens; the payload. A record counts as a hit only if both
// hashes are right and its key and tokens are the requested ones. Whatever else a block depends on
// (salt, extras) is compared through the key, which is a SHA-256 of it.
//
// The file belongs to one process at a time (flock), is made with mode 0600 in a directory of mode
// 0700, and is never followed through a symbolic link. Whoever can write to it can make the model
// say anything: the hashes protect against accidents, the owner and modes against people.
//
// Driven by one thread at a time.
class BlockStore {
 public:
  // Opens the file. Throws LoadError if the directory cannot be made or read, is a symbolic link,
  // belongs to another user or can be written to by others, is used by another process, or
  // max_bytes is too small for one block. A cache file of another model, build, machine or block
  // size is started afresh, with a warning. Returns null, with a warning, if the file is not such a
  // cache or there is no room to start it.
  static std::unique_ptr<BlockStore> open(const StoreOptions& options);
  ~BlockStore();
  BlockStore(const BlockStore&) = delete;

  int num_records() const { return num_records_; }
  // The records whose heads are whole, oldest first.
  const std::vector<kv::StoredBlock>& found() const { return found_; }
  // Returns false if the record could not be written, as when the disk is full; what it held is
  // then lost. The first such failure is a warning. Each write is tried: room may come back.
  bool write(int record, const kv::BlockKey& key, std::span<const Token> tokens,
             std::span<const std::byte> payload);
  // Returns false if the record does not hold this block, whole; `payload` then holds anything.
  bool read(int record, const kv::BlockKey& key, std::span<const Token> tokens,
            std::span<std::byte> payload);
  // Reads or writes, as `job` says.
  bool carry_out(const kv::TierJob& job, std::span<std::byte> payload) {
    return job.kind == kv::TierJob::Kind::kRead ? read(job.record, job.key, job.tokens, payload)
                                                : write(job.record, job.key, job.tokens, payload);
  }

 private:
  BlockStore(const StoreOptions& options, int file);
  bool accept_header();
  bool begin(bool keep_records);
  void scan();
  size_t head_bytes() const;
  off_t offset_of(int record) const;

  const StoreOptions options_;
  const int file_;
  const uint64_t record_bytes_;
  int num_records_ = 0;
  uint64_t sequence_ = 0;  // the number of the newest record
  bool warned_ = false;    // a failed write was logged
  std::vector<kv::StoredBlock> found_;
  std::vector<std::byte> head_;  // scratch, [head_bytes()]
};

}  // namespace skiff::store

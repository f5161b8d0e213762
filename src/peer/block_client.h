// peer/block_client.h -- fetches blocks from the block servers of other instances.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "kv/tiers.h"
#include "peer/settings.h"
#include "peer/wire.h"

namespace skiff::peer {

// One thread has a connection to each server that is in use. A lease belongs to one server, and
// what goes wrong ends it: the connection, a refusal, a block that is missing or damaged, or
// Settings::wait_seconds without a block. Its reads, and those that come later, are then answered
// as failed, so that what is missing is computed here.
//
// A block that lies in shared memory is copied to the host block and then judged, while the lease
// keeps it. It is not left there until the device loads it: the other side may give a lease up at
// any time, and a block that changes after it was judged would be a wrong token.
//
// Methods may be called from any thread; the functions given are called by the client's, if nothing
// else is said.
class BlockClient {
 public:
  struct Config {
    Settings settings;  // `prefills` have numeric hosts
    Facts facts;
    size_t block_bytes = 0;
    // Returns the memory of a host block, block_bytes long, which nobody else touches while a read
    // of it is not answered. Empty, or no function: put() is called instead.
    std::function<std::span<std::byte>(int host_block)> memory;
    // Puts the bytes of a block, of which there are block_bytes, into a host block. Several threads
    // may call it at a time, for different blocks.
    std::function<void(int host_block, std::span<const std::byte> bytes)> put;
    int copiers = 1;  // threads that copy blocks out of shared memory
    // Takes the answer to a job of start(), which stats() counts already.
    std::function<void(const TierDone&)> answer;
  };
  explicit BlockClient(Config config);
  ~BlockClient();

  // Opens a lease of blocks that hold so many tokens: at `origin`, where somebody else has asked
  // for the prompt, or at one of Settings::prefills, which is asked for it.
  void open(Open wish, size_t tokens, const std::optional<KvOrigin>& origin);
  // Ends a lease; its reads are answered as failed.
  void close(uint64_t lease);
  // Reads a block of the lease whose number is the job's record.
  void start(kv::TierJob job);
  Stats stats() const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace skiff::peer

// peer/block_server.h -- the port at which a prefill instance hands out its blocks.
#pragma once
#include <functional>
#include <memory>

#include "peer/settings.h"
#include "peer/shelf.h"
#include "peer/wire.h"

namespace skiff::peer {

// One thread serves all connections, of which there are few. A connection keeps blocks by leases,
// which end with it; one that is silent for the time of a lease is closed. What a connection may
// cost is bounded: leases, keys of all its leases, prompts that are computed for it, and bytes that
// wait to be sent.
//
// All methods may be called from any thread, and all functions given are called by the server's.
class BlockServer {
 public:
  struct Limits {
    int connections = 64;
    // Each connection may have as many leases, keys of all its leases, and reads without an answer.
    // A lease beyond that is not opened, and its reads are answered by Miss; a read beyond that
    // ends the connection.
    size_t leases = 1024, keys = size_t{1} << 18, reads = size_t{1} << 18;
    double greeting_seconds = 5;  // longest time to the end of a login
    double grace_seconds = 5;     // longest wait for blocks of a prompt that has been computed
  };
  struct Config {
    Settings settings;
    Facts facts;
    Limits limits = {};
    // Starts to compute a prompt, under an id that the server chose: kFirstSeq and later. Each
    // start is answered by ended().
    std::function<void(NewSequence)> compute;
    std::function<void(SeqId)> cancel;  // ends one that nobody wants any more
  };
  // The ids of sequences that are computed for others; no others are so large.
  static constexpr SeqId kFirstSeq = SeqId{1} << 63;

  // Binds the port. Throws LoadError if that fails, or if it could be reached from elsewhere while
  // there is no key.
  BlockServer(Config config, std::shared_ptr<Shelf> shelf);
  ~BlockServer();
  int port() const;  // the one that was bound
  // Tells that the sequence has ended. `computed`: its blocks are there, or soon will be.
  void ended(SeqId id, bool computed);
  Stats stats() const;
  // Takes no more prompts to compute: reads of their blocks are answered by Miss, and the other
  // side computes them. Other leases are opened as before.
  void begin_drain();
  void stop();  // ends all connections; idempotent

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace skiff::peer

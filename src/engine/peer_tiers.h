// engine/peer_tiers.h -- the tier of the cache that lies in other instances: on the prefill side
// what is handed out, on the decode side what is fetched.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "base/queue.h"
#include "engine/lower_tiers.h"
#include "engine/resolved.h"
#include "engine/tier_io.h"
#include "peer/block_client.h"
#include "peer/block_server.h"

namespace skiff::engine {

// Does nothing for a mixed instance.
class PeerTiers {
 public:
  // Adds its source to `lower.sources`, as the last one, and says in `lower.config` how the cache
  // shall store and fetch. Both references must outlive this object. Throws LoadError.
  PeerTiers(const Resolved& resolved, LowerTiers& lower, Queue<Command>& inbox, bool quiet);
  ~PeerTiers();

  // Opens the port of a prefill instance. `submit` starts a sequence in the engine. Throws
  // LoadError.
  void listen(std::function<void(NewSequence)> submit);
  TierIo* io() const { return io_.get(); }  // null if there is no source
  // Takes the events of sequences that are computed for others out of `events`. The engine's thread
  // calls it.
  void take_own(std::vector<Event>& events);
  peer::Stats stats() const;
  // See Llm::begin_drain().
  void begin_drain();
  // Closes the port. Prompts that are computed for others are cancelled: they compute them.
  void close();
  void stop();  // closes the port and finishes what was started

 private:
  void open_shelf(const Resolved& resolved, LowerTiers& lower);
  void open_client(LowerTiers& lower);

  const peer::Settings settings_;
  const peer::Facts facts_;
  const bool quiet_;
  Queue<Command>& inbox_;
  std::shared_ptr<peer::Shelf> shelf_;
  std::shared_ptr<peer::BlockClient> client_;
  std::unique_ptr<TierIo> io_;
  std::unique_ptr<peer::BlockServer> server_;
};

}  // namespace skiff::engine

// engine/engine_memory.h -- what one engine has in memory, and the names of its blocks: weights,
// keys and values of its ranks, and the blocks of host memory. engine/residency.h decides what
// becomes of it, for all engines that serve the same model.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "engine/lower_tiers.h"
#include "engine/rank_group.h"
#include "engine/rest.h"
#include "engine/runner.h"

namespace skiff::engine {

// The two kinds of memory.
struct Parts {
  bool weights = false, kv = false;
  bool any() const { return weights || kv; }
  bool operator==(const Parts&) const = default;
};

// Bytes that left the process.
struct GivenBack {
  size_t weights = 0, kv = 0;
  GivenBack& operator+=(const GivenBack& more) {
    weights += more.weights;
    kv += more.kv;
    return *this;
  }
  GivenBack of(Parts parts) const { return {parts.weights ? weights : 0, parts.kv ? kv : 0}; }
};

// The bytes that parts take on a device.
struct DeviceNeed {
  Device device;
  size_t bytes;
};

// Everything but the constructor and the facts is for the engine's thread, while the engine is at
// rest; `runner` passes on to the threads of the ranks what is theirs.
class EngineMemory {
 public:
  struct Of {
    RankGroup& ranks;
    Runner& runner;
    kv::CacheIndex& cache;
    const LowerTiers& lower;
    Engine& engine;
    Queue<Command>& inbox;
    const Resolved& resolved;
    const model::ModelConfig& model;
    std::function<void(const std::string& why)> fail;  // ends the process
    std::function<void(bool)> rests;                   // see Rest::Sleeper
  };
  // All must outlive this object.
  explicit EngineMemory(Of of) : of_(std::move(of)), name_(of_.lower.config.fingerprint) {}

  const Resolved& resolved() const { return of_.resolved; }
  const Ops& ops() const { return of_.ranks.first().ops(); }
  Rest::Sleeper sleeper() const {
    return {.engine = of_.engine, .inbox = of_.inbox, .rests = of_.rests};
  }
  // The fingerprint by which blocks are named; empty where there are no lower tiers.
  const std::string& name() const { return name_; }
  // From now on `hear` is called whenever the prefix cache was emptied. Set before the first
  // change.
  void when_forgotten(std::function<void()> hear) { forgotten_ = std::move(hear); }
  // Returns the bytes of the weights that are this engine's own. Replicas share those on the host.
  size_t weight_bytes() const;

  // From now on sequences are refused for this reason; none: they are taken.
  void refuse(const std::string& why) { of_.engine.refuse(why); }
  // Lets the system have the memory. The contents are lost.
  GivenBack give_back(Parts parts);
  // Takes the memory of keys and values again, for every rank; throws where there is no room.
  void take_kv();
  // Returns what these parts take of each device's memory; ranks on the host have no entry.
  std::vector<DeviceNeed> needs(Parts parts) const;
  // Every rank reads its part of other weights beside the present ones. Throws what the first of
  // them throws that cannot; whatever comes, drop() or take() is next.
  void read(const WeightFolders& folders);
  void drop();
  // Puts what was read in the place of the present weights. Nothing of it should fail: a rank on
  // which it does would compute with weights that the others do not have, so the process ends.
  void take();
  // Empties the prefix cache on the device and in host memory.
  void forget();
  // The same; and from now on blocks of the cache's file have this name, by which none is found
  // that was named otherwise.
  void rename(const std::string& name);

 private:
  const Of of_;
  std::string name_;
  std::function<void()> forgotten_ = [] {};
};

}  // namespace skiff::engine

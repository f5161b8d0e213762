// engine/residency.h -- what of a running model is in memory: its weights and its keys and values
// are given back to the system and taken again, and weights are replaced by others of the same
// shapes. All of it happens between steps, for all ranks of all replicas or for none.
#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/queue.h"
#include "base/result.h"
#include "engine/engine_memory.h"
#include "engine/rest.h"
#include "engine/weights_digest.h"

namespace skiff::engine {

struct WeightsUpdate {
  std::string folder;    // has the same config.json and safetensors files; empty: the present one
  std::string version;   // the caller's name for these weights; any text
  bool digest = false;   // whether WeightsState::digest is wanted
  std::string expected;  // what WeightsDigest::total must be; empty: anything
};

struct WeightsState {
  std::string folder, version;  // the version is empty before the first update
  uint64_t updates = 0;         // number of successful ones
  std::optional<WeightsDigest> digest;
};

// While a part is absent, the engines refuse sequences (Event with kExhausted). Each call empties
// the prefix cache on the device and in host memory. Blocks of the cache's file are named by the
// weights that computed them: they are found again under the same weights and never under others.
//
// Every rank of every replica has the same weights at any time that a step is computed: all engines
// are at rest while something changes (engine/rest.h), each rank's thread reads its part of new
// weights beside the old ones, and only when all ranks have done so, each puts its part in place.
// What drafts is read with the model: from the same folder under it, if it lies there, else from
// its own again (folders_of() of engine/rank_weights.h).
//
// Calls wait until the engines are at rest, so whoever wants that soon ends what runs. They may
// come from any thread but the engines'; one at a time is carried out.
class Residency {
 public:
  // `engines` are those of all replicas of one model (Llm::memories()), at least one; they have
  // begun to run when something is called, and outlive this object, of which there is one at a
  // time. Weights are as the engines have loaded them. Throws LoadError.
  explicit Residency(std::vector<EngineMemory*> engines);

  // Ok where memory can be given back; else the reason, in one line. A device's is where its driver
  // has virtual memory management: recorded steps hold addresses. Other nodes' is not: nobody tells
  // them.
  static Status supported(const Resolved& resolved);

  // What is absent already stays so. kCancelled: an engine has ended. kUnsupported: see
  // supported().
  Result<GivenBack> give_back(Parts parts);
  // Reads absent weights from their folder again; where nothing is absent, returns at once. On an
  // error (the files cannot be read or have changed meanwhile, memory is short for all that is to
  // come) what was absent stays absent. `renamed`: the files may have changed in a way that their
  // sizes, times and samples do not tell, so no block computed before is found again.
  Status take_back(Parts parts, bool renamed = false);
  // Replaces the weights, wherever they are now. Everything is checked before anything is changed:
  // config.json, names, shapes and dtypes of tensors on every rank, the digest (which is of the
  // model's files and not of what drafts) if one is expected. Weights in memory are kept until the
  // new ones have been read beside them, so that a failed read changes nothing; where memory has no
  // room for both, the update is refused with the numbers. Absent weights are in memory afterwards;
  // on an error they stay absent, and take_back() reads the old ones. Error::field is "path",
  // "checksum" or empty.
  Result<WeightsState> update(const WeightsUpdate& update);

  Parts absent() const { return {weights_absent_, kv_absent_}; }
  WeightsState state() const;

 private:
  // An engine of a replica, on its thread.
  using Each = std::function<void(EngineMemory& engine)>;

  // `needed` is asked before the engines are; where it says no, nothing is done.
  Status at_rest(
      const std::function<void(Rest&)>& work,
      const std::function<bool()>& needed = [] { return true; });
  Parts coming(Parts parts) const;  // what of the parts is absent
  void each(Rest& rest, const Each& work);
  void refuse(Rest& rest, const std::string& why);
  void release(Rest& rest, Parts parts, GivenBack& given);
  void restore(Rest& rest, Parts parts, bool renamed);
  void replace(Rest& rest, const WeightsUpdate& update, WeightsState& state);
  void check_folder(const std::string& folder) const;
  void read_weights(Rest& rest, const std::string& folder, const kv::BlockKey& now);
  size_t weight_bytes() const;
  void need_room(Parts parts, size_t on_host, const char* what, const char* way_out) const;
  void take_kv(Rest& rest);
  kv::BlockKey names_of(const std::string& folder) const;
  void rename(Rest& rest, const kv::BlockKey& read, const std::string& why);

  const std::vector<EngineMemory*> engines_;
  const Resolved& resolved_;      // the first one's; weights are the same in all
  Json config_, drafter_config_;  // null for dummy weights and GGUF files, which are not replaced
  std::mutex changing_;           // held while something changes; guards what follows
  kv::BlockKey read_{};           // names_of() the weights when they were read
  GivenBack absent_bytes_;
  std::atomic<bool> weights_absent_{false}, kv_absent_{false};
  mutable std::mutex mutex_;
  WeightsState state_;  // guarded by mutex_
};

}  // namespace skiff::engine

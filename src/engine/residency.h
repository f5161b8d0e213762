// engine/residency.h -- what of a running model is in memory: its weights and its keys and values
// are given back to the system and taken again, and weights are replaced by others of the same
// shapes. All of it happens between steps, on the engine's thread.
#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/queue.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/lower_tiers.h"
#include "engine/rank.h"
#include "engine/weights_digest.h"

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
};

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

// While a part is absent, the engine refuses sequences (Event with kExhausted). Each call empties
// the prefix cache on the device and in host memory. Blocks of the cache's file are named by the
// weights that computed them: they are found again under the same weights and never under others.
//
// Calls wait until the engine is at rest, so whoever wants that soon ends what runs. They may come
// from any thread but the engine's; one at a time is carried out.
class Residency {
 public:
  // All must outlive this object; `engine` has begun to run when something is called.
  Residency(Rank& rank, kv::CacheIndex& cache, LowerTiers& lower, const Resolved& resolved,
            const model::ModelConfig& model, Engine& engine, Queue<Command>& inbox);

  // Ok where memory can be given back; else the reason, in one line. A device's memory is not: its
  // recorded steps hold addresses.
  static Status supported(const Resolved& resolved);

  // What is absent already stays so. kCancelled: the engine has ended. kUnsupported: see
  // supported().
  Result<GivenBack> give_back(Parts parts);
  // Reads absent weights from their folder again. On an error (the files cannot be read, memory is
  // short) what was absent stays absent. `renamed`: the files may have changed in a way that their
  // sizes, times and samples do not tell, so no block computed before is found again.
  Status take_back(Parts parts, bool renamed = false);
  // Replaces the weights, wherever they are now. Everything is checked before anything is changed:
  // config.json, names, shapes and dtypes of tensors, the digest if one is expected. Weights in
  // memory are kept until the new ones have been read beside them, so that a failed read changes
  // nothing; where memory has no room for both, the update is refused with the numbers. Absent
  // weights are in memory afterwards; on an error they stay absent, and take_back() reads the old
  // ones. Error::field is "path", "checksum" or empty.
  Result<WeightsState> update(const WeightsUpdate& update);

  Parts absent() const { return {weights_absent_, kv_absent_}; }
  WeightsState state() const;

 private:
  Status at_rest(std::function<void()> work);
  void release(Parts parts, GivenBack& given);
  void restore(Parts parts, bool renamed);
  void replace(const WeightsUpdate& update, WeightsState& state);
  void check_folder(const std::string& folder) const;
  model::LoadedModel read_weights(const std::string& folder);
  void need_room(size_t bytes, const char* what, const char* way_out) const;
  kv::BlockKey names_of(const std::string& folder) const;
  void rename(const kv::BlockKey& read, const std::string& why);
  void renew();

  Rank& rank_;
  kv::CacheIndex& cache_;
  const LowerTiers& lower_;
  const Resolved& resolved_;
  const model::ModelConfig& model_;
  Engine& engine_;
  Queue<Command>& inbox_;
  Json config_;  // null for dummy weights and GGUF files, which are not replaced
  // The engine's thread alone uses these.
  kv::BlockKey read_{};  // names_of() the weights when they were read
  std::string fingerprint_;
  GivenBack absent_bytes_;
  std::atomic<bool> weights_absent_{false}, kv_absent_{false};
  mutable std::mutex mutex_;
  WeightsState state_;  // guarded by mutex_
};

}  // namespace skiff::engine

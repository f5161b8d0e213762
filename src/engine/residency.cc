#include "engine/residency.h"

#include <algorithm>
#include <filesystem>
#include <new>
#include <utility>

#include "base/load_error.h"
#include "base/log.h"
#include "base/random.h"
#include "engine/fingerprint.h"
#include "gguf/gguf_files.h"
#include "model/memory_plan.h"
#include "model/same_config.h"
#include "tensor/device_memory.h"
#include "tensor/out_of_memory.h"
#include "tensor/returned_memory.h"

namespace skiff::engine {
namespace {

namespace fs = std::filesystem;

// A LoadError with the field of a request that is to blame.
struct Refused : LoadError {
  Refused(Error error) : LoadError(error.what), error(std::move(error)) {}
  Error error;
};

// What is wrong with the files is the fault of whoever named them; want of memory is not.
template <class Work>
auto blaming_path(Work work) {
  try {
    return work();
  } catch (const Refused&) {
    throw;
  } catch (const OutOfHostMemory&) {
    throw;
  } catch (const OutOfDeviceMemory&) {
    throw;
  } catch (const LoadError& error) {
    throw Refused({Code::kInvalid, error.what(), "path"});
  } catch (const fs::filesystem_error& error) {
    throw Refused({Code::kInvalid, escaped(error.what(), 400), "path"});
  }
}

double gib(size_t bytes) { return static_cast<double>(bytes) / (size_t{1} << 30); }

Json config_in(const std::string& folder, const std::string& name) {
  return read_json_file((fs::path(folder) / name).string(),
                        {.max_bytes = 16u << 20, .max_depth = 32});
}

bool replaceable(const Resolved& resolved) {
  return resolved.model.format != model::LoadFormat::kDummy &&
         gguf_file_of(resolved.model.folder).empty();
}

constexpr const char* kDrafterConfig = "config.json";

}  // namespace

Residency::Residency(std::vector<EngineMemory*> engines)
    : engines_(std::move(engines)), resolved_(engines_.at(0)->resolved()) {
  state_.folder = resolved_.model.folder;
  if (!supported(resolved_)) return;
  read_ = names_of(state_.folder);
  // Where blocks have a name already, it is that of the files as they were when it was made.
  const std::string& name = engines_.front()->name();
  if (name.size() == read_.size()) std::ranges::copy(name, read_.begin());
  if (!replaceable(resolved_)) return;
  config_ = config_in(resolved_.model.folder, resolved_.model.config_name);
  if (resolved_.drafter) drafter_config_ = config_in(resolved_.drafter->folder, kDrafterConfig);
}

Status Residency::supported(const Resolved& resolved) {
  const auto apart = [](std::string_view what) {
    return Error{Code::kUnsupported,
                 fmt::format("weights are not given back or replaced with {} yet: leave it out, or "
                             "start another server and stop this one",
                             what)};
  };
  if (resolved.nodes.nodes > 1) return apart("ranks on several nodes (--ips)");
  if (resolved.cache.peers.role != peer::Role::kMixed) return apart("--splitwise-role");
  // A device that is not there is refused by its backend.
  const Device device = resolved.device.memory();
  if (gives_back(device) || device.index >= num_cuda_devices()) return ok();
  return Error{Code::kUnsupported,
               fmt::format("the memory of weights and of the KV cache cannot be given back on {}, "
                           "which has no virtual memory management: use --device cpu, or start "
                           "another server and stop this one",
                           name(resolved.device))};
}

WeightsState Residency::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

// Does the work while all engines are at rest, and turns what it throws into an error.
Status Residency::at_rest(const std::function<void(Rest&)>& work,
                          const std::function<bool()>& needed) {
  if (const Status good = supported(resolved_); !good) return good;
  const std::lock_guard lock(changing_);
  if (!needed()) return ok();
  try {
    std::vector<Rest::Sleeper> sleepers;
    sleepers.reserve(engines_.size());
    for (const EngineMemory* engine : engines_) sleepers.push_back(engine->sleeper());
    Rest rest(sleepers);
    work(rest);
    return ok();
  } catch (const Refused& refused) {
    return refused.error;
  } catch (const LoadError& error) {
    return Error{Code::kExhausted, error.what()};
  } catch (const std::bad_alloc&) {
    return Error{Code::kExhausted, "memory has run out"};
  } catch (const std::future_error&) {
    return Error{Code::kCancelled, "the engine has stopped"};
  } catch (const std::exception& error) {  // a folder that may not be listed, for one
    return Error{Code::kExhausted, escaped(error.what(), 400)};
  }
}

Result<GivenBack> Residency::give_back(Parts parts) {
  GivenBack given;
  const Status done = at_rest([&](Rest& rest) { release(rest, parts, given); });
  if (!done) return done.error();
  return given;
}

// Engines that have everything go on: rest would wait for what runs, and hold back what comes.
Status Residency::take_back(Parts parts, bool renamed) {
  return at_rest([&](Rest& rest) { restore(rest, parts, renamed); },
                 [&] { return coming(parts).any(); });
}

Result<WeightsState> Residency::update(const WeightsUpdate& update) {
  WeightsState state;
  const Status done = at_rest([&](Rest& rest) { replace(rest, update, state); });
  if (!done) return done.error();
  return state;
}

// What follows happens while all engines are at rest.

void Residency::each(Rest& rest, const Each& work) {
  rest.on_all([&](size_t engine) { work(*engines_[engine]); });
}

void Residency::refuse(Rest& rest, const std::string& why) {
  each(rest, [&](EngineMemory& engine) { engine.refuse(why); });
}

void Residency::release(Rest& rest, Parts parts, GivenBack& given) {
  each(rest, [](EngineMemory& engine) { engine.forget(); });
  refuse(rest, "weights or KV cache are not in memory");
  const Parts leaving{.weights = parts.weights && !weights_absent_.exchange(true),
                      .kv = parts.kv && !kv_absent_.exchange(true)};
  std::mutex adding;
  each(rest, [&](EngineMemory& engine) {
    const GivenBack its = engine.give_back(leaving);
    const std::lock_guard lock(adding);
    given += its;
  });
  if (leaving.weights) absent_bytes_.weights = given.weights;
  if (leaving.kv) absent_bytes_.kv = given.kv;
  if (!absent().any()) refuse(rest, "");
}

Parts Residency::coming(Parts parts) const {
  return {.weights = parts.weights && weights_absent_, .kv = parts.kv && kv_absent_};
}

// Room is asked for before the first part is taken, for all of them. Keys and values come when
// weights have been read, because reading takes room on a device, too.
void Residency::restore(Rest& rest, Parts parts, bool renamed) {
  const Parts coming = this->coming(parts);
  const GivenBack bytes = absent_bytes_.of(coming);
  need_room(coming, bytes.weights + bytes.kv,
            !coming.kv        ? "weights"
            : !coming.weights ? "keys and values"
                              : "weights, keys and values",
            "stop what else uses memory");
  if (coming.weights) {
    const std::string folder = state().folder;
    const kv::BlockKey now = names_of(folder);
    read_weights(rest, folder, now);
    if (coming.kv) take_kv(rest);
    each(rest, [](EngineMemory& engine) { engine.take(); });
    weights_absent_ = false;
    if (renamed || now != read_) rename(rest, now, "read again");
  } else if (coming.kv) {
    take_kv(rest);
  }
  if (coming.kv) kv_absent_ = false;
  if (!absent().any()) refuse(rest, "");
}

// On an error, what was read beside is let go, too.
void Residency::take_kv(Rest& rest) {
  try {
    each(rest, [](EngineMemory& engine) { engine.take_kv(); });
  } catch (...) {
    each(rest, [](EngineMemory& engine) {
      engine.give_back({.kv = true});
      engine.drop();
    });
    throw;
  }
}

void Residency::replace(Rest& rest, const WeightsUpdate& update, WeightsState& state) {
  const WeightsState before = this->state();
  const std::string folder = update.folder.empty() ? before.folder : update.folder;
  check_folder(folder);
  const kv::BlockKey now = blaming_path([&] { return names_of(folder); });
  std::optional<WeightsDigest> digest;
  if (update.digest || !update.expected.empty())
    digest = blaming_path([&] { return weights_digest(folder); });
  if (!update.expected.empty() && digest->total != update.expected)
    throw Refused({Code::kInvalid,
                   fmt::format("the weights in {} have the checksum {} and not {}: the copy is not "
                               "complete, or it is of other weights",
                               folder, digest->total, update.expected),
                   "checksum"});
  if (weights_absent_)
    need_room({.weights = true}, absent_bytes_.weights, "the new weights",
              "stop what else uses memory");
  else
    need_room({.weights = true}, weight_bytes(), "the new weights beside the old ones",
              "give the old ones back first (POST /v1/sleep?tags=weight), then update");
  // All that may fail comes first: weights that were replaced never keep the names of others.
  blaming_path([&] { read_weights(rest, folder, now); });
  each(rest, [](EngineMemory& engine) { engine.take(); });
  weights_absent_ = false;
  rename(rest, now, fmt::format("update {} to {}", before.updates + 1, update.version));
  if (!absent().any()) refuse(rest, "");
  state = {.folder = folder,
           .version = update.version,
           .updates = before.updates + 1,
           .digest = std::move(digest)};
  const std::lock_guard lock(mutex_);
  state_ = state;
  state_.digest.reset();
}

void Residency::check_folder(const std::string& folder) const {
  const auto refuse = [](std::string what) {
    throw Refused({Code::kInvalid, std::move(what), "path"});
  };
  if (config_.is_null())
    refuse(
        "only weights of safetensors files are replaced; this server has dummy weights, or those "
        "of a GGUF file");
  std::error_code error;  // where nobody may look is no folder, either
  if (!fs::is_directory(folder, error)) refuse(fmt::format("{}: no folder", escaped(folder)));
  const auto check = [](const Json& mine, const std::string& where, const std::string& name) {
    const Json other = blaming_path([&] { return config_in(where, name); });
    if (const Status same = model::check_same_config(mine, other); !same)
      throw Refused(same.error());
  };
  check(config_, folder, resolved_.model.config_name);
  const WeightFolders folders = folders_of(resolved_, folder);
  if (resolved_.drafter) check(drafter_config_, folders.drafter, kDrafterConfig);
}

// Every rank of every engine reads beside what it has. If one cannot, or if the folder no longer
// has the names `now` afterwards, all let go of what they have read: ranks open the files one by
// one, so some may have read older files than others.
void Residency::read_weights(Rest& rest, const std::string& folder, const kv::BlockKey& now) {
  const WeightFolders folders = folders_of(resolved_, folder);
  try {
    each(rest, [&](EngineMemory& engine) { engine.read(folders); });
    if (names_of(folder) != now)
      fail_load("{} has changed while it was read: ask again when the new weights are complete",
                escaped(folder));
  } catch (...) {
    each(rest, [](EngineMemory& engine) { engine.drop(); });
    throw;
  }
}

size_t Residency::weight_bytes() const {
  size_t bytes = 0;
  for (const EngineMemory* engine : engines_) bytes += engine->weight_bytes();
  return bytes;
}

// Each rank on a device has that device for itself; of the host, all need `on_host` together.
void Residency::need_room(Parts parts, size_t on_host, const char* what,
                          const char* way_out) const {
  const auto need = [&](size_t bytes, size_t there, const std::string& where) {
    if (bytes > there)
      fail_load("{} need {:.2f} GiB of memory{}, and {:.2f} GiB are available: {}", what,
                gib(bytes), where, gib(there), way_out);
  };
  if (engines_.front()->ops().device() == Device{})
    return need(on_host, model::available_memory(), "");
  for (const EngineMemory* engine : engines_)
    for (const DeviceNeed& its : engine->needs(parts))
      need(its.bytes, device_memory(its.device).free,
           fmt::format(" on CUDA device {}", its.device.index));
}

// Returns what tells weights of a folder from others: the fingerprint of the files as they are now.
kv::BlockKey Residency::names_of(const std::string& folder) const {
  Resolved there = resolved_;
  there.model.folder = folder;
  if (there.drafter) there.drafter->folder = folders_of(resolved_, folder).drafter;
  return fingerprint_of(there, {.backend = engines_.front()->ops().arithmetic(),
                                .build = std::string(sources_digest())});
}

// From now on blocks have names that none ever had: neither the files' times nor samples of their
// bytes tell all versions apart.
void Residency::rename(Rest& rest, const kv::BlockKey& read, const std::string& why) {
  read_ = read;
  const std::string text =
      fmt::format("{} {} {}", std::string(read_.begin(), read_.end()), random_seed(), why);
  const kv::BlockKey name = kv::sha256(std::as_bytes(std::span(text)));
  each(rest, [fingerprint = std::string(name.begin(), name.end())](EngineMemory& engine) {
    engine.rename(fingerprint);
  });
}

}  // namespace skiff::engine

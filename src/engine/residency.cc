#include "engine/residency.h"

#include <filesystem>
#include <new>
#include <utility>

#include "base/load_error.h"
#include "base/log.h"
#include "base/random.h"
#include "engine/fingerprint.h"
#include "gguf/gguf.h"
#include "model/memory_plan.h"
#include "model/overwrite.h"
#include "model/same_config.h"
#include "tensor/pages.h"

namespace skiff::engine {
namespace {

namespace fs = std::filesystem;

// A LoadError with the field of a request that is to blame.
struct Refused : LoadError {
  Refused(Error error) : LoadError(error.what), error(std::move(error)) {}
  Error error;
};

// What is wrong with the files is the fault of whoever named them.
template <class Work>
auto blaming_path(Work work) {
  try {
    return work();
  } catch (const Refused&) {
    throw;
  } catch (const LoadError& error) {
    throw Refused({Code::kInvalid, error.what(), "path"});
  } catch (const fs::filesystem_error& error) {
    throw Refused({Code::kInvalid, escaped(error.what(), 400), "path"});
  }
}

double gib(size_t bytes) { return static_cast<double>(bytes) / (size_t{1} << 30); }

Json config_of(const Resolved& resolved) {
  const ModelSource& model = resolved.model;
  if (model.format == model::LoadFormat::kDummy || !gguf_file_of(model.folder).empty()) return {};
  return read_json_file((fs::path(model.folder) / model.config_name).string(),
                        {.max_bytes = 16u << 20, .max_depth = 32});
}

}  // namespace

Residency::Residency(Rank& rank, kv::CacheIndex& cache, LowerTiers& lower, const Resolved& resolved,
                     const model::ModelConfig& model, Engine& engine, Queue<Command>& inbox)
    : rank_(rank),
      cache_(cache),
      lower_(lower),
      resolved_(resolved),
      model_(model),
      engine_(engine),
      inbox_(inbox),
      config_(config_of(resolved)),
      fingerprint_(lower.config.fingerprint) {
  state_.folder = resolved.model.folder;
  if (supported(resolved)) read_ = names_of(state_.folder);
}

Status Residency::supported(const Resolved& resolved) {
  const auto apart = [](std::string_view what) {
    return Error{Code::kUnsupported,
                 fmt::format("weights are not given back or replaced with {} yet: leave it out, or "
                             "start another server and stop this one",
                             what)};
  };
  if (resolved.ranks > 1) return apart("--tensor-parallel-size above 1");
  if (resolved.replicas > 1) return apart("--data-parallel-size above 1");
  if (resolved.drafter) return apart("a model or module that drafts (--speculative-config)");
  if (resolved.cache.peers.role != peer::Role::kMixed) return apart("--splitwise-role");
  if (resolved.device.memory() == Device{}) return ok();
  return Error{Code::kUnsupported,
               fmt::format("the memory of weights and of the KV cache is not given back on {} yet, "
                           "because recorded steps hold its addresses: use --device cpu, or start "
                           "another server and stop this one",
                           name(resolved.device))};
}

WeightsState Residency::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

// Has the engine's thread do the work, and turns what that throws into an error.
Status Residency::at_rest(std::function<void()> work) {
  if (const Status good = supported(resolved_); !good) return good;
  auto done = engine_.errands().add([this, work = std::move(work)] {
    rank_.ops().bind_thread();
    work();
  });
  inbox_.push(Cancel{});  // wakes the engine; no sequence has the id 0
  try {
    done.get();
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
  const Status done = at_rest([&] { release(parts, given); });
  if (!done) return done.error();
  return given;
}

Status Residency::take_back(Parts parts, bool renamed) {
  return at_rest([&] { restore(parts, renamed); });
}

Result<WeightsState> Residency::update(const WeightsUpdate& update) {
  WeightsState state;
  const Status done = at_rest([&] { replace(update, state); });
  if (!done) return done.error();
  return state;
}

// The engine's thread runs what follows.

void Residency::release(Parts parts, GivenBack& given) {
  renew();
  engine_.refuse("weights or KV cache are not in memory");
  if (parts.weights && !weights_absent_.exchange(true)) {
    for (const Buffer& buffer : rank_.weights().buffers)
      given.weights += give_back_pages(buffer.data(), buffer.size());
    absent_bytes_.weights = given.weights;
  }
  if (parts.kv && !kv_absent_.exchange(true)) {
    given.kv = rank_.kv().give_back() + lower_.host.give_back();
    absent_bytes_.kv = given.kv;
  }
  if (!absent().any()) engine_.refuse("");
}

void Residency::restore(Parts parts, bool renamed) {
  if (parts.weights && weights_absent_) {
    const std::string folder = state().folder;
    need_room(absent_bytes_.weights, "weights", "stop what else uses memory");
    const kv::BlockKey now = names_of(folder);
    model::LoadedModel fresh = read_weights(folder);
    model::overwrite(rank_.weights(), std::move(fresh), rank_.ops());
    weights_absent_ = false;
    if (renamed || now != read_) rename(now, "read again");
  }
  if (parts.kv && kv_absent_) {
    need_room(absent_bytes_.kv, "keys and values", "stop what else uses memory");
    kv_absent_ = false;
  }
  if (!absent().any()) engine_.refuse("");
}

void Residency::replace(const WeightsUpdate& update, WeightsState& state) {
  const WeightsState before = this->state();
  const std::string folder = update.folder.empty() ? before.folder : update.folder;
  check_folder(folder);
  std::optional<WeightsDigest> digest;
  if (update.digest || !update.expected.empty())
    digest = blaming_path([&] { return weights_digest(folder); });
  if (!update.expected.empty() && digest->total != update.expected)
    throw Refused({Code::kInvalid,
                   fmt::format("the weights in {} have the checksum {} and not {}: the copy is not "
                               "complete, or it is of other weights",
                               folder, digest->total, update.expected),
                   "checksum"});
  if (!weights_absent_)
    need_room(rank_.weights().bytes, "the new weights beside the old ones",
              "give the old ones back first (POST /v1/sleep?tags=weight), then update");
  // All that may fail comes first: weights that were replaced never keep the names of others.
  const kv::BlockKey now = blaming_path([&] { return names_of(folder); });
  model::overwrite(rank_.weights(), blaming_path([&] { return read_weights(folder); }),
                   rank_.ops());
  weights_absent_ = false;
  rename(now, fmt::format("update {} to {}", before.updates + 1, update.version));
  renew();
  if (!absent().any()) engine_.refuse("");
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
  const Json other = blaming_path([&] {
    return read_json_file((fs::path(folder) / resolved_.model.config_name).string(),
                          {.max_bytes = 16u << 20, .max_depth = 32});
  });
  if (const Status same = model::check_same_config(config_, other); !same)
    throw Refused(same.error());
}

model::LoadedModel Residency::read_weights(const std::string& folder) {
  model::LoadedModel fresh = model::load_model(folder, model_,
                                               {.precision = resolved_.precision,
                                                .schemes = resolved_.schemes,
                                                .format = resolved_.model.format,
                                                .dummy_seed = resolved_.model.seed,
                                                .progress = nullptr},
                                               rank_.ops());
  const Status same = model::check_same_form(rank_.weights(), fresh);
  if (!same) throw Refused(same.error());
  return fresh;
}

void Residency::need_room(size_t bytes, const char* what, const char* way_out) const {
  const size_t there = model::available_memory();
  if (bytes <= there) return;
  fail_load("{} need {:.2f} GiB of memory, and {:.2f} GiB are available: {}", what, gib(bytes),
            gib(there), way_out);
}

// Returns what tells weights of a folder from others: the fingerprint of the files as they are now.
kv::BlockKey Residency::names_of(const std::string& folder) const {
  Resolved there = resolved_;
  there.model.folder = folder;
  return fingerprint_of(
      there, {.backend = rank_.ops().arithmetic(), .build = std::string(sources_digest())});
}

// From now on blocks have names that none ever had: neither the files' times nor samples of their
// bytes tell all versions apart.
void Residency::rename(const kv::BlockKey& read, const std::string& why) {
  read_ = read;
  const std::string text =
      fmt::format("{} {} {}", std::string(read_.begin(), read_.end()), random_seed(), why);
  const kv::BlockKey name = kv::sha256(std::as_bytes(std::span(text)));
  fingerprint_.assign(name.begin(), name.end());
  renew();
}

void Residency::renew() { cache_.renew(fingerprint_); }

}  // namespace skiff::engine

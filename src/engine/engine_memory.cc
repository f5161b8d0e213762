#include "engine/engine_memory.h"

#include <atomic>
#include <exception>

namespace skiff::engine {

size_t EngineMemory::weight_bytes() const {
  size_t bytes = 0;
  for (int rank = 0; rank < of_.ranks.size(); ++rank) bytes += of_.ranks.rank(rank).weight_bytes();
  return bytes;
}

GivenBack EngineMemory::give_back(Parts parts) {
  std::atomic<size_t> weights = 0, kv = 0;
  of_.runner.on_ranks([&](size_t index) {
    Rank& rank = of_.ranks.rank(static_cast<int>(index));
    if (parts.weights) weights += rank.give_back_weights();
    if (parts.kv) kv += rank.kv().give_back();
  });
  // What devices copy to and from is page-locked.
  if (parts.kv && ops().device() == Device{}) kv += of_.lower.host.give_back();
  return {.weights = weights, .kv = kv};
}

void EngineMemory::take_kv() {
  of_.runner.on_ranks(
      [&](size_t index) { of_.ranks.rank(static_cast<int>(index)).kv().take_back(); });
}

std::vector<DeviceNeed> EngineMemory::needs(Parts parts) const {
  std::vector<DeviceNeed> needs;
  for (int index = 0; index < of_.ranks.size(); ++index) {
    const Rank& rank = of_.ranks.rank(index);
    if (rank.ops().device() == Device{}) continue;
    needs.push_back(
        {.device = rank.ops().device(),
         .bytes = (parts.weights ? rank.weight_bytes() : 0) + (parts.kv ? rank.kv().bytes() : 0)});
  }
  return needs;
}

void EngineMemory::read(const WeightFolders& folders) {
  of_.runner.on_ranks([&](size_t index) {
    of_.ranks.rank(static_cast<int>(index)).read_weights(of_.model, folders);
  });
}

void EngineMemory::drop() {
  of_.runner.on_ranks(
      [&](size_t index) { of_.ranks.rank(static_cast<int>(index)).drop_weights(); });
}

void EngineMemory::take() {
  try {
    of_.runner.on_ranks(
        [&](size_t index) { of_.ranks.rank(static_cast<int>(index)).take_weights(); });
  } catch (const std::exception& error) {
    of_.fail(std::string("weights could not be replaced on every rank: ") + error.what());
  }
}

void EngineMemory::forget() {
  of_.cache.renew(name_);
  forgotten_();
}

void EngineMemory::rename(const std::string& name) {
  name_ = name;
  forget();
}

}  // namespace skiff::engine

#include "engine/replicas.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "engine/engine_memory.h"
#include "engine/resolved.h"

namespace skiff::engine {
namespace {

Dealer::Options options_of(const Llm& replica, int count) {
  const Resolved& resolved = replica.resolved();
  const auto blocks = static_cast<size_t>(replica.memory().blocks) +
                      static_cast<size_t>(replica.memory().host_slots);
  return {.replicas = count,
          .block_size = resolved.cache.block_size,
          .blocks = resolved.cache.prefix_caching ? blocks : 0,
          .max_seqs = resolved.limits.max_seqs,
          .seed = random_seed()};
}

}  // namespace

Replicas::Replicas(const Start& start, Sink sink)
    : sink_(std::move(sink)),
      replicas_(start([this](std::vector<Event> events) { hear(std::move(events)); })) {
  SKIFF_CHECK(!replicas_.empty());
  const int count = static_cast<int>(replicas_.size());
  dealer_ = std::make_unique<Dealer>(options_of(*replicas_.front(), count));
  for (int i = 0; i < count; ++i)
    for (EngineMemory* memory : replicas_[static_cast<size_t>(i)]->memories())
      memory->when_forgotten([this, i] { dealer_->forget(i); });
}

void Replicas::hear(std::vector<Event> events) {
  for (const Event& event : events) dealer_->hear(event);
  sink_(std::move(events));
}

void Replicas::submit(NewSequence sequence) {
  std::vector<NewSequence> alone;
  alone.push_back(std::move(sequence));
  submit_together(std::move(alone));
}

void Replicas::submit_together(std::vector<NewSequence> sequences) {
  std::vector<int> free;
  free.reserve(replicas_.size());
  for (const auto& replica : replicas_) free.push_back(replica->stats().blocks_free);
  const auto chosen = static_cast<size_t>(dealer_->deal(sequences, free));
  replicas_[chosen]->submit_together(std::move(sequences));
}

void Replicas::cancel(SeqId id) {
  if (const auto replica = dealer_->replica_of(id))
    replicas_[static_cast<size_t>(*replica)]->cancel(id);
}

EngineStats Replicas::stats() const { return sum_of(stats_of_each()); }

std::vector<EngineStats> Replicas::stats_of_each() const {
  std::vector<EngineStats> all;
  all.reserve(replicas_.size());
  for (const auto& replica : replicas_) all.push_back(replica->stats());
  return all;
}

std::vector<EngineMemory*> Replicas::memories() {
  std::vector<EngineMemory*> all;
  for (const auto& replica : replicas_)
    for (EngineMemory* memory : replica->memories()) all.push_back(memory);
  return all;
}

void Replicas::stop(bool drain) {
  std::vector<std::jthread> stopping;
  stopping.reserve(replicas_.size());
  for (const auto& replica : replicas_)
    stopping.emplace_back([&replica, drain] { replica->stop(drain); });
}

EngineStats sum_of(const std::vector<EngineStats>& all) {
  EngineStats sum = all.at(0);
  for (size_t i = 1; i < all.size(); ++i) {
    const EngineStats& one = all[i];
    sum.running += one.running;
    sum.waiting += one.waiting;
    sum.blocks_total += one.blocks_total;
    sum.blocks_free += one.blocks_free;
    sum.blocks_unused += one.blocks_unused;
    sum.steps += one.steps;
    sum.prompt_tokens += one.prompt_tokens;
    sum.cached_tokens += one.cached_tokens;
    sum.generation_tokens += one.generation_tokens;
    sum.preemptions += one.preemptions;
    sum.drafts += one.drafts;
    sum.tally += one.tally;
    sum.tiers += one.tiers;
    sum.seconds_since_progress = std::max(sum.seconds_since_progress, one.seconds_since_progress);
  }
  return sum;
}

}  // namespace skiff::engine

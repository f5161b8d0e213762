#include "engine/dealer.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace skiff::engine {

// The lower rank is the better one.
struct Dealer::Rank {
  bool full = false;   // the request would wait for a place or for blocks
  int64_t tokens = 0;  // the sum that Dealer's comment names
  int64_t negated_free = 0;
  int sequences = 0;
  auto operator<=>(const Rank&) const = default;
};

Dealer::Dealer(const Options& options) : options_(options) {
  SKIFF_CHECK(options.replicas >= 1 && options.block_size >= 1);
  for (int i = 0; i < options.replicas; ++i)
    replicas_.push_back({.load = {}, .seen = SeenBlocks(options.blocks)});
}

Dealer::Rank Dealer::rank_of(const Replica& replica, std::span<const NewSequence> sequences,
                             std::span<const BlockName> names, int blocks_free) const {
  const auto prompt = static_cast<int64_t>(sequences.front().prompt.size());
  const auto cached = static_cast<int64_t>(replica.seen.match(names)) * options_.block_size;
  const int64_t lacking = prompt - cached;
  const Load& load = replica.load;
  const int64_t room = int64_t{blocks_free} * options_.block_size - load.queued;
  const auto places = options_.max_seqs - load.sequences;
  return {.full = room < lacking || places < std::ssize(sequences),
          .tokens = lacking + load.queued + load.running,
          .negated_free = -int64_t{blocks_free},
          .sequences = load.sequences};
}

int Dealer::deal(std::span<const NewSequence> sequences, std::span<const int> blocks_free) {
  SKIFF_CHECK(!sequences.empty() && blocks_free.size() == replicas_.size());
  std::vector<BlockName> names;
  if (options_.blocks > 0)
    names = block_names(sequences.front(), options_.block_size, options_.seed);
  std::lock_guard lock(mutex_);
  const auto continued = bookings_.find(sequences.front().continues.value_or(0));
  if (continued != bookings_.end()) {
    const int same = continued->second.replica;
    for (const NewSequence& sequence : sequences) book(same, sequence, names);
    return same;
  }
  if (const auto wanted = sequences.front().replica) {
    SKIFF_CHECK(*wanted >= 0 && *wanted < options_.replicas, "there is no replica {}", *wanted);
    for (const NewSequence& sequence : sequences) book(*wanted, sequence, names);
    return *wanted;
  }
  size_t best = 0;
  Rank least;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    const Rank rank = rank_of(replicas_[i], sequences, names, blocks_free[i]);
    if (i > 0 && rank >= least) continue;
    best = i;
    least = rank;
  }
  for (const NewSequence& sequence : sequences) book(static_cast<int>(best), sequence, names);
  return static_cast<int>(best);
}

// The sequences of a request have one prompt, which is computed once as far as it fills blocks.
void Dealer::book(int index, const NewSequence& sequence, std::span<const BlockName> names) {
  Replica& replica = replicas_[static_cast<size_t>(index)];
  const auto prompt = static_cast<int64_t>(sequence.prompt.size());
  const auto cached = static_cast<int64_t>(replica.seen.match(names)) * options_.block_size;
  const Booking booking{.replica = index, .prompt = prompt, .queued = prompt - cached};
  const bool is_new = bookings_.emplace(sequence.id, booking).second;
  SKIFF_CHECK(is_new, "sequence {} is there already", sequence.id);
  replica.load.queued += booking.queued;
  ++replica.load.sequences;
  replica.seen.see(names);
}

std::optional<int> Dealer::replica_of(SeqId id) const {
  std::lock_guard lock(mutex_);
  const auto found = bookings_.find(id);
  if (found == bookings_.end()) return std::nullopt;
  return found->second.replica;
}

void Dealer::forget(int replica) {
  std::lock_guard lock(mutex_);
  replicas_.at(static_cast<size_t>(replica)).seen = SeenBlocks(options_.blocks);
}

bool Dealer::hear(const Event& event) {
  std::lock_guard lock(mutex_);
  const auto found = bookings_.find(event.seq);
  if (found == bookings_.end()) return false;
  Booking& booking = found->second;
  Load& load = replicas_[static_cast<size_t>(booking.replica)].load;
  if (!event.tokens.empty()) {
    load.queued -= std::exchange(booking.queued, 0);
    const int64_t more = std::ssize(event.tokens) + (booking.running == 0 ? booking.prompt : 0);
    booking.running += more;
    load.running += more;
  }
  if (event.finish == Finish::kNone) return true;
  load.queued -= booking.queued;
  load.running -= booking.running;
  --load.sequences;
  bookings_.erase(found);
  return true;
}

Dealer::Load Dealer::load(int replica) const {
  std::lock_guard lock(mutex_);
  return replicas_.at(static_cast<size_t>(replica)).load;
}

}  // namespace skiff::engine

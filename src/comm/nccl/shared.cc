#include "comm/nccl/shared.h"

#include <utility>

#include "base/log.h"

namespace skiff::nccl {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{500}, kTold{2000};
// A call of NCCL that goes on for so long waits for a rank that is gone.
constexpr milliseconds kCall{1000};
// After this time the process must end by other means. All nodes end within 10 s, of which the
// silence of one that is lost may have taken 6.
constexpr milliseconds kLeave{2500};

}  // namespace

Group::Shared::Shared(const Settings& settings, const Library& nccl)
    : settings(settings), nccl(nccl), meeting(settings.ranks) {}

Group::Shared::~Shared() {
  {
    const std::lock_guard lock(mutex_);
    destroyed_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

Link& Group::Shared::add(std::unique_ptr<Link> link) {
  const std::lock_guard lock(mutex_);
  links_.push_back(std::move(link));
  return *links_.back();
}

std::vector<Link*> Group::Shared::links() {
  const std::lock_guard lock(mutex_);
  std::vector<Link*> all;
  all.reserve(links_.size());
  for (const auto& link : links_) all.push_back(link.get());
  return all;
}

void Group::Shared::watch() {
  watcher_ = std::thread([this] { look(); });
}

void Group::Shared::end(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (ended) return;
    why_ = reason;
    ended = true;
  }
  changed_.notify_all();
  meeting.end(reason);
}

void Group::Shared::throw_if_ended() {
  if (!ended) return;
  const std::lock_guard lock(mutex_);
  throw comm::GroupEnded(why_);
}

// Returns whether the group has ended or is being destroyed by then.
bool Group::Shared::wait_for_end(milliseconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return destroyed_ || ended; });
}

// Where another process is gone, the hosts learn of it, too, and of the reason: they come first.
void Group::Shared::look() {
  while (!wait_for_end(kLook))
    for (Link* link : links()) {
      const std::string what = link->trouble();
      if (what.empty() || wait_for_end(kTold)) continue;
      const std::string why = fmt::format("rank {}: NCCL has lost a link: {}", link->rank(), what);
      end(why);
      if (settings.failed) settings.failed(why);
    }
  if (ended) let_go();
}

// Each rank's abort has a thread, because that of one may wait for another's. They end once the
// recorded steps are gone, and with them comes the end of this object.
void Group::Shared::let_go() {
  std::vector<std::thread> threads;
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    why = why_;
  }
  for (Link* link : links()) threads.emplace_back([&why, link] { link->abort(why, kCall); });
  std::unique_lock lock(mutex_);
  const bool left = changed_.wait_for(lock, kLeave, [this] { return destroyed_; });
  lock.unlock();
  if (!left && may_wait && settings.failed) settings.failed(why);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace skiff::nccl

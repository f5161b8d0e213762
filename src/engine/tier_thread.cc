#include "engine/tier_thread.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"

namespace skiff::engine {
namespace {

using Clock = std::chrono::steady_clock;

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

// The state is shared by both threads and the object, so that the object can be destroyed while the
// worker hangs in a call.
struct TierThread::State {
  struct Asked {
    kv::TierJob job;
    Clock::time_point at;
  };
  struct Running {
    Asked asked;
    Clock::time_point began;
    bool answered = false;  // answered by the watch thread; guarded by `hand` as well
  };

  State(Work w, HostMemory h, Queue<Command>& in, const Patience& p, int s)
      : work(std::move(w)), host(std::move(h)), inbox(in), patience(p), source(s) {}

  void do_jobs();
  void keep_watch();
  void add(kv::TierJob job);
  bool finish(double seconds);  // returns true if the worker has ended

  const Work work;
  const HostMemory host;
  Queue<Command>& inbox;
  const Patience patience;
  const int source;

  std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  std::deque<Asked> reads, writes;
  std::optional<Running> running;
  std::optional<Clock::time_point> stalled;  // time since which the file is out of use
  bool ending = false;                       // no more jobs will come
  bool left = false;  // the object, and with it the inbox and the host memory, is gone
  bool worker_ended = false;
  // Held while bytes are copied to or from the host block of the running job. Taken after `mutex`,
  // or alone.
  std::mutex hand;

 private:
  bool next(std::unique_lock<std::mutex>& lock);
  bool carry_out(const kv::TierJob& job);
  bool copy(const kv::TierJob& job, bool to_host);
  void answer(const Asked& asked, bool ok, double seconds) {
    inbox.push(TierDone{.job = asked.job.id, .ok = ok, .seconds = seconds});
  }
  void answer_late(const Asked& asked) {
    inbox.push(TierDone{.job = asked.job.id, .seconds = patience.answer, .late = true});
  }
  void give_up_running();
  void take_out_of_use(Clock::time_point now);
  std::optional<Clock::time_point> deadline() const;
  void forgive(Clock::duration pause, Clock::time_point now);
  void look(Clock::time_point now);

  std::vector<std::byte> block;  // used by the worker only
};

void TierThread::State::add(kv::TierJob job) {
  {
    std::lock_guard lock(mutex);
    Asked asked{std::move(job), Clock::now()};
    if (stalled) return answer_late(asked);
    (asked.job.kind == kv::TierJob::Kind::kRead ? reads : writes).push_back(std::move(asked));
  }
  changed.notify_all();
}

// Called by the worker. Takes the next job; returns false if there is none and none will come.
bool TierThread::State::next(std::unique_lock<std::mutex>& lock) {
  changed.wait(lock, [&] { return ending || !reads.empty() || !writes.empty(); });
  std::deque<Asked>& jobs = reads.empty() ? writes : reads;
  if (jobs.empty() || left) return false;
  running = {.asked = std::move(jobs.front()), .began = Clock::now()};
  jobs.pop_front();
  changed.notify_all();
  return true;
}

// Returns false if the job has been answered: its host block belongs to somebody else by now.
bool TierThread::State::copy(const kv::TierJob& job, bool to_host) {
  std::lock_guard lock(hand);
  if (running->answered) return false;
  const std::span<std::byte> memory = host(job.host_block);
  block.resize(memory.size());
  if (to_host)
    std::ranges::copy(block, memory.begin());
  else if (job.kind == kv::TierJob::Kind::kWrite)
    std::ranges::copy(memory, block.begin());
  return true;
}

// What was answered before it began is left out: `block` still has the bytes of another job, which
// would be written under the name of this one.
bool TierThread::State::carry_out(const kv::TierJob& job) {
  if (!copy(job, /*to_host=*/false)) return false;
  const bool ok = work(job, block);
  if (ok && job.kind == kv::TierJob::Kind::kRead) copy(job, /*to_host=*/true);
  return ok;
}

void TierThread::State::do_jobs() {
  pthread_setname_np(pthread_self(), "tier");
  std::unique_lock lock(mutex);
  while (next(lock)) {
    const kv::TierJob job = running->asked.job;
    const auto began = running->began;
    lock.unlock();
    const bool ok = carry_out(job);
    const std::chrono::duration<double> took = Clock::now() - began;
    lock.lock();
    if (!running->answered) answer(running->asked, ok, took.count());
    running.reset();
    changed.notify_all();
  }
  worker_ended = true;
  changed.notify_all();
}

// Called by the watch thread, with `mutex` held.
void TierThread::State::give_up_running() {
  std::lock_guard lock(hand);
  if (!std::exchange(running->answered, true)) answer_late(running->asked);
}

void TierThread::State::take_out_of_use(Clock::time_point now) {
  stalled = now;
  spdlog::warn(
      "the cache's file has not answered for {} s: it is out of use, and blocks are computed "
      "again; "
      "it is tried again once it has answered, after {} s at the earliest",
      patience.answer, patience.rest);
  inbox.push(TierState{.source = source, .usable = false});
  give_up_running();
  for (std::deque<Asked>* jobs : {&reads, &writes})
    for (; !jobs->empty(); jobs->pop_front()) answer_late(jobs->front());
  changed.notify_all();
}

// Returns when the watch thread must check next if nothing changes before.
std::optional<Clock::time_point> TierThread::State::deadline() const {
  const auto patient = duration_of(patience.answer);
  if (stalled) {
    if (running) return std::nullopt;
    return *stalled + duration_of(patience.rest);
  }
  std::optional<Clock::time_point> first;
  const auto consider = [&](Clock::time_point at) { first = std::min(first.value_or(at), at); };
  if (running) {
    consider(running->began + patient);
    if (!running->answered && running->asked.job.kind == kv::TierJob::Kind::kRead)
      consider(running->asked.at + patient);
  }
  if (!reads.empty()) consider(reads.front().at + patient);
  return first;
}

void TierThread::State::look(Clock::time_point now) {
  const auto patient = duration_of(patience.answer);
  if (stalled) {
    if (running || now < *stalled + duration_of(patience.rest)) return;
    stalled.reset();
    spdlog::info("the cache's file is used again");
    inbox.push(TierState{.source = source, .usable = true});
    return;
  }
  if (running && now >= running->began + patient) return take_out_of_use(now);
  if (running && running->asked.job.kind == kv::TierJob::Kind::kRead &&
      now >= running->asked.at + patient)
    give_up_running();
  for (; !reads.empty() && now >= reads.front().at + patient; reads.pop_front())
    answer_late(reads.front());
}

// Called by the watch thread when it woke later than it wanted to: for that long the process was
// stopped (SIGSTOP, a suspended machine), and no call could come to its end.
void TierThread::State::forgive(Clock::duration pause, Clock::time_point now) {
  const auto later = [&](Clock::time_point& at) { at = std::min(at + pause, now); };
  if (running) {
    later(running->began);
    later(running->asked.at);
  }
  for (Asked& each : reads) later(each.at);
}

// While a job waits, the watch thread wakes several times per Patience::answer, so that it notices
// every pause that matters.
void TierThread::State::keep_watch() {
  pthread_setname_np(pthread_self(), "tier-watch");
  const auto tick = duration_of(patience.answer / 8);
  std::unique_lock lock(mutex);
  while (!left) {
    const auto at = deadline();
    if (!at) {
      changed.wait(lock);
    } else {
      const auto wanted = std::min(*at, Clock::now() + tick);
      changed.wait_until(lock, wanted);
      const auto now = Clock::now();
      if (now > wanted + tick) forgive(now - wanted, now);
    }
    if (!left) look(Clock::now());
  }
}

bool TierThread::State::finish(double seconds) {
  std::unique_lock lock(mutex);
  ending = true;
  changed.notify_all();
  changed.wait_for(lock, duration_of(seconds), [&] { return worker_ended || stalled; });
  left = true;
  changed.notify_all();
  if (!running) {  // the worker takes no more jobs, so it will end
    changed.wait(lock, [&] { return worker_ended; });
    return true;
  }
  spdlog::warn("the cache's file does not answer in time: it is left without the newest {} blocks",
               writes.size() + 1);
  std::lock_guard hands(hand);
  running->answered = true;
  return false;
}

TierThread::TierThread(Work work, HostMemory host, Queue<Command>& inbox, const Patience& patience,
                       int source)
    : state_(std::make_shared<State>(std::move(work), std::move(host), inbox, patience, source)),
      worker_([state = state_] { state->do_jobs(); }),
      watch_([state = state_] { state->keep_watch(); }) {}

TierThread::~TierThread() {
  if (state_->finish(state_->patience.farewell))
    worker_.join();
  else
    worker_.detach();
  watch_.join();
}

void TierThread::start(kv::TierJob job) { state_->add(std::move(job)); }

}  // namespace skiff::engine

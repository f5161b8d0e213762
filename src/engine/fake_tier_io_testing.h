// engine/fake_tier_io_testing.h -- for tests: a "file" that answers when a test says so, and fails
// as often as the test wants.
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "base/queue.h"
#include "engine/fake_runner_testing.h"
#include "engine/tier_thread.h"
#include "store/block_store.h"

namespace skiff::engine {

// For a TierThread: reads and writes `store`, with limits that no test machine's disk reaches.
inline TierThread::Work work_on(std::unique_ptr<store::BlockStore> store) {
  return [store = std::shared_ptr<store::BlockStore>(std::move(store))](
             const kv::TierJob& job, std::span<std::byte> block) {
    return store->carry_out(job, block);
  };
}
constexpr TierThread::Patience kPatient{.answer = 60, .rest = 60, .farewell = 60};

// Moves a job's bytes when the job is answered, not when it is started, so that reusing the
// block meanwhile changes the text.
class FakeTierIo : public TierIo {
 public:
  struct Faults {
    double read = 0, write = 0;  // probabilities that they fail
    double seconds = 0;          // the time that they report
  };
  FakeTierIo(FakeRunner& runner, Queue<Command>& inbox, Faults faults, uint64_t seed,
             int source = 0)
      : runner_(runner), inbox_(inbox), faults_(faults), source_(source), rng_(seed) {}

  void start(kv::TierJob job) override {
    if (stalled_) return answer_late(job);
    if (job.kind == kv::TierJob::Kind::kRead) scramble(job.host_block);
    jobs_.push_back(std::move(job));
  }
  // Answers up to n jobs: reads and writes each in order, but interleaved at random.
  void answer(size_t n) {
    for (; n > 0 && !jobs_.empty(); --n) {
      auto it = jobs_.begin();
      if (rng_() % 2) it = std::ranges::find(jobs_, kv::TierJob::Kind::kRead, &kv::TierJob::kind);
      if (it == jobs_.end()) it = jobs_.begin();
      const kv::TierJob job = std::move(*it);
      jobs_.erase(it);
      const bool ok = job.kind == kv::TierJob::Kind::kRead ? read(job) : write(job);
      inbox_.push(TierDone{job.id, ok, faults_.seconds});
    }
  }
  bool busy() const { return !jobs_.empty(); }
  // The disk hangs: all jobs, and those that come, are answered as late until it recovers. The job
  // that hangs has not touched its host block, as a TierThread's does not.
  void stall() {
    if (std::exchange(stalled_, true)) return;
    inbox_.push(TierState{.source = source_, .usable = false});
    for (; !jobs_.empty(); jobs_.pop_front()) answer_late(jobs_.front());
  }
  void recover() {
    if (std::exchange(stalled_, false)) inbox_.push(TierState{.source = source_, .usable = true});
  }

 private:
  void answer_late(const kv::TierJob& job) {
    inbox_.push(TierDone{.job = job.id, .seconds = faults_.seconds, .late = true});
  }
  bool chance(double p) { return std::bernoulli_distribution(p)(rng_); }
  void scramble(int host) { std::ranges::fill(runner_.host_block(host), Token{-7}); }

  bool write(const kv::TierJob& job) {
    const auto memory = runner_.host_block(job.host_block);
    records_[job.record] = {job.key, {memory.begin(), memory.end()}};
    if (!chance(faults_.write)) return true;
    records_.erase(job.record);
    return false;
  }
  bool read(const kv::TierJob& job) {
    scramble(job.host_block);
    const auto found = records_.find(job.record);
    if (found == records_.end() || found->second.first != job.key || chance(faults_.read))
      return false;
    std::ranges::copy(found->second.second, runner_.host_block(job.host_block).begin());
    return true;
  }

  FakeRunner& runner_;
  Queue<Command>& inbox_;
  Faults faults_;
  int source_;
  std::mt19937_64 rng_;
  std::deque<kv::TierJob> jobs_;
  bool stalled_ = false;
  std::map<int, std::pair<kv::BlockKey, std::vector<Token>>> records_;
};

}  // namespace skiff::engine

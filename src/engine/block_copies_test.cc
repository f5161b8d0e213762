// Loads beside rows: random plans on small pools, against the order that StepPlan says.
#include "engine/block_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <random>

#include "base/load_error.h"
#include "engine/late_ops_testing.h"
#include "engine/model_testing.h"
#include "ops/cuda/backend.h"

namespace skiff::engine {
namespace {

constexpr int kBlocks = 10, kHosts = 8;

ModelSpec spec() {
  DummyFolder folder("block_copies");
  return model::read_model_config(folder.path()).spec;
}

// Steps whose rows show what is in some blocks, and then fill one.
class Steps {
 public:
  Steps(Ops& ops, uint64_t seed, int page)
      : ops_(ops),
        rng_(seed),
        spec_(spec()),
        kv_(spec_, kBlocks, page, {.dtype = DType::kF32}, ops.device()),
        host_(spec_, kHosts, page, {.dtype = DType::kF32}, ops.device()),
        bytes_(static_cast<int64_t>(host_.block_bytes())),
        shown_(memory(2 * kShown)),
        values_(memory(3)),
        busy_(ops.device(), 2 * kBusy),
        copies_(&host_, kv_.layers(), ops) {
    for (int i = 0; i < kBlocks; ++i) {
      ops_.copy(block(i), write(i));
      ops_.wait(ops_.mark());
    }
    for (int i = 0; i < kHosts; ++i) fill(i);
  }

  // Two steps are in flight, as in an engine.
  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      if (flying_.size() == 2) collect();
      launch();
    }
    while (!flying_.empty()) collect();
  }
  int beside() const { return beside_; }
  int waited() const { return waited_; }

 private:
  static constexpr int kShown = 4;  // blocks that a step's rows show, at most
  static constexpr int64_t kBusy = 32 << 20;
  using Value = uint8_t;
  struct Flight {
    BlockCopies::Begun begun;
    uint64_t mark = 0;
    std::vector<int> hosts;
    std::vector<int> shows;            // blocks
    std::array<Value, kBlocks> right;  // what they hold
    uint64_t step = 0;
  };

  Buffer memory(int blocks) const {
    const size_t size = static_cast<size_t>(blocks) * host_.block_bytes();
    return ops_.device() == Device{} ? Buffer(Device{}, size) : Buffer::pinned(size);
  }
  int below(int n) { return static_cast<int>(rng_() % static_cast<uint64_t>(n)); }
  Tensor block(int i) const { return host_.load(kv_.layers(), 0, i).to; }
  Tensor line(const Buffer& of, int i) const {
    return of.view(DType::kU8, {1, bytes_}, static_cast<size_t>(i) * host_.block_bytes());
  }
  Value next() { return static_cast<Value>(++last_); }

  void fill(int host) {
    on_host_[static_cast<size_t>(host)] = next();
    std::ranges::fill(host_.block(host),
                      static_cast<std::byte>(on_host_[static_cast<size_t>(host)]));
  }
  // What a row shows is copied here.
  Tensor shown(const Flight& flight, size_t i) const {
    return line(shown_, static_cast<int>(flight.step % 2 * kShown + i));
  }
  // Returns what this step's row writes to a block.
  Tensor write(int i) {
    on_device_[static_cast<size_t>(i)] = next();
    const Tensor values = line(values_, static_cast<int>(step_ % 3));
    std::fill_n(values.as<Value>(), bytes_, on_device_[static_cast<size_t>(i)]);
    return values;
  }

  // Host blocks of steps in flight are left alone.
  std::optional<int> free_host() {
    const int host = below(kHosts);
    for (const Flight& flight : flying_)
      if (std::ranges::count(flight.hosts, host) > 0) return {};
    return host;
  }

  void add_saves(StepPlan& plan, Flight& flight) {
    for (int n = below(3); n > 0; --n) {
      const std::optional<int> host = free_host();
      if (!host || std::ranges::count(flight.hosts, *host) > 0) continue;
      const int from = below(kBlocks);
      plan.saves.push_back({.block = from, .host = *host});
      flight.hosts.push_back(*host);
      on_host_[static_cast<size_t>(*host)] = on_device_[static_cast<size_t>(from)];
    }
  }
  void add_loads(StepPlan& plan, Flight& flight) {
    for (int n = below(2) * below(4); n > 0; --n) {
      const int host = below(kHosts), to = below(kBlocks);
      plan.loads.push_back({.block = to, .host = host});
      flight.hosts.push_back(host);
      on_device_[static_cast<size_t>(to)] = on_host_[static_cast<size_t>(host)];
    }
  }
  void launch() {
    StepPlan plan{.step = ++step_};
    Flight flight{.step = step_};
    add_saves(plan, flight);
    add_loads(plan, flight);
    for (int n = below(kShown + 1); n > 0; --n) flight.shows.push_back(below(kBlocks));
    flight.right = on_device_;
    const int written = below(2 * kBlocks);
    plan.pages.assign(flight.shows.begin(), flight.shows.end());
    if (written < kBlocks) plan.pages.push_back(written);

    flight.begun = copies_.start(plan);
    beside_ += flight.begun.beside;
    waited_ += !plan.loads.empty() && !flight.begun.beside;
    if (below(2) == 0) be_busy();
    for (size_t i = 0; i < flight.shows.size(); ++i)
      ops_.copy(shown(flight, i), block(flight.shows[i]));
    if (written < kBlocks) ops_.copy(block(written), write(written));
    flight.mark = ops_.mark();
    flying_.push_back(std::move(flight));
  }
  void be_busy() {
    const Tensor all = busy_.view(DType::kF32, {2, kBusy / 4});
    const int times = ops_.device() == Device{} ? 0 : 10;
    for (int i = 0; i < times; ++i) ops_.copy(all.row_range(i % 2, 1), all.row_range(1 - i % 2, 1));
  }
  void collect() {
    const Flight flight = std::move(flying_.front());
    flying_.pop_front();
    ops_.wait(flight.mark);
    for (size_t i = 0; i < flight.shows.size(); ++i) {
      const auto* got = shown(flight, i).as<Value>();
      const Value right = flight.right[static_cast<size_t>(flight.shows[i])];
      ASSERT_EQ(std::count(got, got + bytes_, right), bytes_)
          << "step " << flight.step << ", block " << flight.shows[i];
    }
    StepResult result;
    copies_.finish(flight.begun, result);
    EXPECT_GE(result.copy_seconds, result.seconds) << "the step, which took none, and some copies";
    for (const int host : flight.hosts)
      if (std::ranges::none_of(
              flying_, [&](const Flight& f) { return std::ranges::count(f.hosts, host) > 0; }))
        check_and_fill(host);
  }
  // A step's saves have come, and its loads no longer read.
  void check_and_fill(int host) {
    const auto want = static_cast<std::byte>(on_host_[static_cast<size_t>(host)]);
    ASSERT_EQ(std::ranges::count(host_.block(host), want), bytes_) << "host block " << host;
    fill(host);
  }

  Ops& ops_;
  std::mt19937_64 rng_;
  const ModelSpec spec_;
  const model::KvCache kv_;
  model::HostBlocks host_;
  const int64_t bytes_;  // the size of a block
  const Buffer shown_, values_, busy_;
  BlockCopies copies_;
  std::array<Value, kBlocks> on_device_{};
  std::array<Value, kHosts> on_host_{};
  std::deque<Flight> flying_;
  uint64_t step_ = 0, last_ = 0;
  int beside_ = 0, waited_ = 0;
};

TEST(BlockCopies, AreDoneInTheOrderOfPlansHoweverLateLoadsCome) {
  int beside = 0, waited = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    LateOps ops;
    Steps steps(ops, seed, /*page=*/8);
    steps.run(40);
    ASSERT_FALSE(testing::Test::HasFailure());
    beside += steps.beside();
    waited += steps.waited();
  }
  EXPECT_GT(beside, 500);
  EXPECT_GT(waited, 500);
}

TEST(BlockCopiesOnADevice, AreDoneInTheOrderOfPlans) {
  std::unique_ptr<Ops> ops;
  try {
    ops = make_cuda_ops({});
  } catch (const LoadError& e) {
    GTEST_SKIP() << "no device: " << e.what();
  }
  int beside = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    Steps steps(*ops, seed, /*page=*/4096);
    steps.run(60);
    ASSERT_FALSE(testing::Test::HasFailure());
    beside += steps.beside();
  }
  EXPECT_GT(beside, 12);
}

}  // namespace
}  // namespace skiff::engine

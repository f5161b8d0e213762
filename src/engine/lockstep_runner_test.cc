// The runners of replicas that share experts compute each other's rounds, on the host or ahead.
#include "engine/lockstep_runner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "arch/shard.h"
#include "comm/communicator.h"
#include "engine/failing_ops_testing.h"
#include "engine/model_testing.h"
#include "ops/cpu/backend.h"
#include "ops/cpu/cpu_ops.h"

namespace skiff::engine {
namespace {

using std::chrono::milliseconds;

constexpr const char* kMixture = R"({
  "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 32, "vocab_size": 96, "head_dim": 8,
  "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 256, "torch_dtype": "float32",
  "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 21,
  "norm_topk_prob": true, "rms_norm_eps": 1e-6})";

std::unique_ptr<Ops> ops_failing_at(int norm) {
  if (norm == 0) return make_reference_ops();
  return std::make_unique<FailingOps>(norm);
}

// One of two replicas, or a rank of it, with what it computes with.
struct Half {
  Half(const std::string& dir, Lockstep& lockstep, int replica, std::unique_ptr<Ops> backend)
      : Half(dir, lockstep, {.sharer = replica, .sharers = 2}, comm::make_solo_mesh(),
             std::move(backend)) {}
  Half(const std::string& dir, Lockstep& lockstep, const model::RankOf& part, comm::Mesh group,
       std::unique_ptr<Ops> backend)
      : ops(std::move(backend)),
        model(model::load_model(dir, config_of(dir),
                                {.format = model::LoadFormat::kDummy, .part = part}, *ops)),
        kv(model.spec, 4, 8, {.dtype = DType::kF32}, {}),
        mesh(std::move(group)) {
    mesh.experts = lockstep.exchange(part.sharer, part.rank);
    executor.emplace(model, *ops, mesh, kv.layers(),
                     StepExecutor::Options{.limits = {.max_seqs = 2,
                                                      .max_rows = 24,
                                                      .max_context = 32,
                                                      .max_logit_rows = 8,
                                                      .vocab = 96}});
  }
  static model::ModelConfig config_of(const std::string& dir) {
    model::ModelConfig config = model::read_model_config(dir);
    deal_experts_whole(config.spec);
    return config;
  }

  std::unique_ptr<Ops> ops;
  model::LoadedModel model;
  model::KvCache kv;
  comm::Mesh mesh;
  std::optional<StepExecutor> executor;
};

// A device that computes asynchronously.
constexpr Device kAhead{Device::kCuda, 0};

StepPlan prompt(uint64_t step, int count = 3) {
  std::vector<Token> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 5);
  return {.step = step,
          .spans = {{.seq = 1, .count = count, .sample = true}},
          .tokens = tokens,
          .pages = {0, 1, 2},
          .page_start = {0, 3},
          .opened = {{.slot = 0,
                      .params = {.temperature = 0, .logprobs = 5},
                      .history = tokens,
                      .prompt_len = count}}};
}

class LockstepRunnerTest : public testing::Test {
 protected:
  LockstepRunnerTest()
      : folder_(testing::UnitTest::GetInstance()->current_test_info()->name(), kMixture) {}
  std::unique_ptr<Half> half(int replica) {
    return std::make_unique<Half>(folder_.path(), lockstep_, replica, make_reference_ops());
  }

  DummyFolder folder_;
  Lockstep lockstep_{2};
};

// A device has two steps in flight, and none is computed twice or left out while others are idle.
TEST_F(LockstepRunnerTest, StepsInFlightAreThoseOfTheHost) {
  const auto a = half(0), b = half(1);
  StepResult alone;
  {
    LockstepRunner first(lockstep_, 0, *a->executor), second(lockstep_, 1, *b->executor);
    first.launch(prompt(1));
    alone = first.wait(1);
  }
  LockstepRunner first(lockstep_, 0, make_round_work(*a->executor), kAhead),
      second(lockstep_, 1, make_round_work(*b->executor), kAhead);
  first.launch(prompt(1));
  constexpr uint64_t kSteps = 12;
  for (uint64_t step = 2; step < kSteps; ++step) {
    first.launch(prompt(step));
    if (step % 3) second.launch(prompt(step, 5));
    const StepResult got = first.wait(step - 1);
    EXPECT_EQ(got.step, step - 1);
    EXPECT_EQ(got.logprobs, alone.logprobs);
    if (step % 3) {
      EXPECT_EQ(second.wait(step).step, step);
    }
  }
  EXPECT_EQ(first.wait(kSteps - 1).logprobs, alone.logprobs);
}

// A mixture is all that takes much of the arena, and rows are as many as there may be.
TEST_F(LockstepRunnerTest, StepsTakeNoMemoryThatWasNotPlanned) {
  std::string wide = kMixture;
  wide.replace(wide.find("_size\": 21"), 10, "_size\": 96");
  const DummyFolder folder("lockstep_wide", wide);
  for (const int threads : {1, 2}) {
    cpu::CpuOps* ops[2] = {};
    std::unique_ptr<Half> halves[2];
    Lockstep lockstep(2);
    for (int i = 0; i < 2; ++i) {
      auto own = std::make_unique<cpu::CpuOps>(CpuOptions{.threads = threads});
      ops[i] = own.get();
      halves[i] = std::make_unique<Half>(folder.path(), lockstep, i, std::move(own));
    }
    const ModelSpec& spec = halves[0]->model.spec;
    ModelSpec plain = spec;
    for (Layer& layer : plain.layers) std::get<Moe>(layer.ffn).sharers = 1;
    const auto arena = [&](const ModelSpec& of) {
      return model::Decoder::arena_bytes(of, DType::kF32, 96, 1, *ops[0]);
    };
    EXPECT_GT(arena(spec), arena(plain)) << "rows of both replicas";
    const size_t held = ops[0]->scratch_held();
    EXPECT_GT(held, 0u);
    LockstepRunner first(lockstep, 0, *halves[0]->executor),
        second(lockstep, 1, *halves[1]->executor);
    for (uint64_t step = 1; step < 4; ++step) {
      first.launch(prompt(step, 24));
      second.launch(prompt(step, 24));
      EXPECT_EQ(first.wait(step).logprobs, second.wait(step).logprobs);
    }
    EXPECT_EQ(ops[0]->scratch_held(), held) << "a step has taken memory that nobody planned";
  }
}

// Two steps are launched ahead, and work for the thread comes behind them.
TEST_F(LockstepRunnerTest, WorkIsDoneBehindTheStepsThatWereLaunched) {
  const auto a = half(0), b = half(1);
  LockstepRunner first(lockstep_, 0, *a->executor), second(lockstep_, 1, *b->executor);
  first.launch(prompt(1));
  first.launch(prompt(2));
  std::thread::id thread;
  first.on_ranks([&](size_t rank) {
    EXPECT_EQ(rank, 0u);
    thread = std::this_thread::get_id();
  });
  EXPECT_NE(thread, std::this_thread::get_id());
  EXPECT_THROW(first.on_ranks([](size_t) { throw std::runtime_error("cannot"); }),
               std::runtime_error);
  const StepResult before = first.wait(1);
  EXPECT_EQ(first.wait(2).tokens, before.tokens);
  second.launch(prompt(1));
  EXPECT_EQ(second.wait(1).step, 1u) << "the replica goes on";
}

// Two replicas of so many ranks each, of which the last may fail.
class TwoReplicas {
 public:
  TwoReplicas(const std::string& dir, int ranks, Device device = {}, int fails_at_norm = 0)
      : lockstep_(2, ranks) {
    for (int replica = 0; replica < 2; ++replica) {
      std::vector<comm::Mesh> meshes = comm::make_thread_meshes(ranks);
      std::vector<GroupRunner::Member> members;
      for (int rank = 0; rank < ranks; ++rank) {
        const bool fails = replica == 1 && rank == ranks - 1;
        halves_.push_back(std::make_unique<Half>(
            dir, lockstep_,
            model::RankOf{.rank = rank, .size = ranks, .sharer = replica, .sharers = 2},
            std::move(meshes[static_cast<size_t>(rank)]),
            ops_failing_at(fails ? fails_at_norm : 0)));
        members.push_back({*halves_.back()->executor, *halves_.back()->mesh.tp});
      }
      runners_.push_back(std::make_unique<LockstepRunner>(
          lockstep_, replica,
          ranks == 1 ? make_round_work(members[0].executor)
                     : make_round_work(lockstep_, replica, members, device),
          device));
    }
  }
  LockstepRunner& replica(size_t index) { return *runners_[index]; }
  // Returns what waiting for a step throws.
  std::string wait(size_t replica, uint64_t step) {
    try {
      runners_[replica]->wait(step);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  }

 private:
  Lockstep lockstep_;
  std::vector<std::unique_ptr<Half>> halves_;
  std::vector<std::unique_ptr<LockstepRunner>> runners_;
};

// The replica with the step and the idle one may be either.
TEST(LockstepReplicas, AStepIsTheSameOnEitherOneAndBesideAnother) {
  const DummyFolder folder("lockstep_replicas", kMixture);
  for (const auto& [ranks, device] : {std::pair{1, Device{}}, {2, Device{}}, {2, kAhead}}) {
    TwoReplicas two(folder.path(), ranks, device);
    LockstepRunner &first = two.replica(0), &second = two.replica(1);
    first.launch(prompt(1));
    const StepResult alone = first.wait(1);
    second.launch(prompt(1));
    EXPECT_EQ(second.wait(1).logprobs, alone.logprobs);
    for (uint64_t step = 2; step < 40; ++step) {
      const bool alike = step % 2;
      first.launch(prompt(step));
      second.launch(prompt(step, alike ? 3 : 5));
      EXPECT_EQ(first.wait(step).logprobs, alone.logprobs);
      EXPECT_EQ(second.wait(step).logprobs == alone.logprobs, alike);
    }
    std::atomic<int> worked = 0;
    first.on_ranks([&](size_t rank) { worked += 1 << rank; });
    EXPECT_EQ(worked, (1 << ranks) - 1) << "each rank has done the work once";
  }
}

// The group also ends where the one that fails has no rows of its own. With ranks, a rank of one
// replica waits for a rank of the other one, and that waits for a third rank.
TEST(LockstepReplicas, OneThatFailsEndsTheGroupWithItsReason) {
  const DummyFolder folder("lockstep_failing", kMixture);
  struct Case {
    int ranks, norm;
    Device device = {};
  };
  for (const auto& [ranks, norm, device] : {Case{1, 1},
                                            {1, 3},
                                            {1, 5},
                                            {1, 1, kAhead},
                                            {1, 3, kAhead},
                                            {2, 1},
                                            {2, 2},
                                            {2, 3},
                                            {2, 4},
                                            {2, 1, kAhead},
                                            {2, 2, kAhead},
                                            {2, 3, kAhead},
                                            {2, 4, kAhead}})
    for (const bool idle : {false, true}) {
      SCOPED_TRACE(fmt::format("{} ranks, norm {}, idle {}", ranks, norm, idle));
      TwoReplicas two(folder.path(), ranks, device, norm);
      two.replica(0).launch(prompt(1));
      if (!idle) two.replica(1).launch(prompt(1));
      two.replica(0).launch(prompt(2));
      two.wait(0, 1);
      const std::string why = ranks == 1 ? "no room" : "replica 1: rank 1: no room";
      EXPECT_EQ(two.wait(0, 2), ranks == 1 ? "replica 1: " + why : why);
      if (idle) two.replica(1).launch(prompt(1));
      EXPECT_EQ(two.wait(1, 1), why) << "from then on";
    }
}

// A device on which each round takes kRound.
class TimedWork final : public RoundWork {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr milliseconds kRound{100};

  explicit TimedWork(std::atomic<int>& rounds) : rounds_(rounds) {}
  void launch(const StepPlan& plan, std::span<const RoundPart> round) override {
    run_empty(round);
    launched_.emplace_back(plan.step, end_);
  }
  void run_empty(std::span<const RoundPart>) override {
    ++rounds_;
    end_ = std::max(end_, Clock::now()) + kRound;
  }
  StepResult collect() override {
    const auto [step, end] = launched_.front();
    launched_.pop_front();
    std::this_thread::sleep_until(end);
    return {.step = step};
  }
  void on_ranks(const RankWork& work) override { work(0); }

 private:
  std::atomic<int>& rounds_;
  Clock::time_point end_;
  std::deque<std::pair<uint64_t, Clock::time_point>> launched_;
};

// Plans as an engine does: the next step when most of the running one has passed.
void run_steps(Runner& runner, uint64_t steps) {
  for (uint64_t step = 1; step <= steps; ++step) {
    runner.launch(prompt(step));
    if (step > 1) runner.wait(step - 1);
    std::this_thread::sleep_for(TimedWork::kRound * 4 / 5);
  }
  runner.wait(steps);
}

// Two replicas that begin apart come to compute in the same rounds, instead of in turns.
TEST(LockstepReplicas, WithLongStepsAreSoonInStep) {
  constexpr int kSteps = 6;
  Lockstep lockstep(2);
  std::atomic<int> rounds[2] = {};
  {
    LockstepRunner first(lockstep, 0, std::make_unique<TimedWork>(rounds[0]), kAhead),
        second(lockstep, 1, std::make_unique<TimedWork>(rounds[1]), kAhead);
    std::thread later([&] {
      std::this_thread::sleep_for(TimedWork::kRound * 3 / 10);
      run_steps(second, kSteps);
    });
    run_steps(first, kSteps);
    later.join();
  }
  for (const auto& of_replica : rounds) EXPECT_LE(of_replica, kSteps + 2) << "they take turns";
}

// Its engine plans as late as the other one, because it knows how long the round will be.
TEST(LockstepReplicas, OneKnowsThePromptsBesideIt) {
  Lockstep lockstep(2);
  std::atomic<int> rounds = 0;
  LockstepRunner first(lockstep, 0, std::make_unique<TimedWork>(rounds), kAhead),
      second(lockstep, 1, std::make_unique<TimedWork>(rounds), kAhead);
  StepPlan decode{.step = 1, .spans = {{.seq = 1, .count = 1, .sample = true}}, .tokens = {3}};
  first.launch(prompt(1, 5));
  second.launch(decode);
  first.wait(1), second.wait(1);
  EXPECT_EQ(first.prompt_rows_beside(), 0) << "the other one decodes";
  EXPECT_EQ(second.prompt_rows_beside(), 5);
  decode.step = 2;
  second.launch(decode);
  second.wait(2);
  EXPECT_EQ(second.prompt_rows_beside(), 0);
}

}  // namespace
}  // namespace skiff::engine

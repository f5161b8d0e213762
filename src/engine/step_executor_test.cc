// Tests what steps allocate, and the time that they report for copies.
#include "engine/step_executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <thread>

#include "engine/device_runner.h"
#include "engine/engine.h"
#include "engine/model_testing.h"
#include "model/slots.h"
#include "ops/cpu/backend.h"
#include "ops/cpu/cpu_features.h"
#include "ops/reference/reference_ops.h"

namespace skiff::engine {
namespace {

constexpr int kBlock = 16, kBlocks = 128;

// `seqs` sequences of `count` rows each behind `begin` positions that hold anything.
StepPlan plan_of(uint64_t step, int seqs, int begin, int count) {
  StepPlan plan{.step = step, .page_start = {0}};
  for (int s = 0; s < seqs; ++s) {
    plan.spans.push_back({.seq = static_cast<SeqId>(s + 1),
                          .slot = s,
                          .begin = begin,
                          .count = count,
                          .sample = true});
    for (int i = 0; i < count; ++i) plan.tokens.push_back((s + 3 * i) % 40);
    // Sequences share the blocks before `begin`, and write to blocks of their own.
    const int shared = begin / kBlock, end = (begin + count - 1) / kBlock + 1;
    for (int p = 0; p < end; ++p)
      plan.pages.push_back(p < shared ? p : shared + s * (end - shared) + p - shared);
    plan.page_start.push_back(static_cast<int32_t>(plan.pages.size()));
    plan.opened.push_back(
        {.slot = s, .params = {.temperature = 1, .top_p = 0.9f}, .history = {1}, .prompt_len = 1});
  }
  return plan;
}

void check_scratch(const std::string& dir, DType act, int threads, cpu::Isa isa,
                   std::string_view quantization = "") {
  cpu::CpuOps ops({.threads = threads, .isa = isa});
  const model::ModelConfig config = model::read_model_config(dir);
  const model::SchemeChoice schemes = model::choose_schemes(quantization, "", config.spec);
  const std::vector<WeightFormat> formats = model::quantized_formats(model::kept_slots(
      model::slots_of(config.spec), {}, schemes, {}, [](const WeightFormat&) { return true; }));
  const model::LoadedModel model = model::load_model(
      dir, config, {.precision = uniform_precision(act), .schemes = schemes, .progress = {}}, ops);
  const sched::Limits limits{
      .max_seqs = 24, .max_rows = 96, .max_context = 1100, .max_logit_rows = 24};
  model::KvCache kv(model.spec, kBlocks, kBlock, {.dtype = act}, ops.device());
  comm::Mesh mesh = comm::make_solo_mesh();
  StepExecutor executor(model, ops, mesh, kv.layers(),
                        {.act = act, .formats = formats, .limits = limits});
  const size_t held = ops.scratch_held();
  uint64_t step = 0;
  // Many rows of one text, of several, at its beginning and far into it; decodes of many and of
  // one.
  for (const auto& [seqs, begin, count] : {std::tuple{1, 0, 96},
                                           {1, 1004, 96},
                                           {1, 1099, 1},
                                           {24, 1099, 1},
                                           {24, 0, 1},
                                           {3, 1060, 32},
                                           {3, 1060, 2},
                                           {1, 5, 31},
                                           {1, 5, 33}})
    executor.run(plan_of(++step, seqs, begin, count));
  EXPECT_EQ(ops.scratch_held(), held) << dir << ": a step has taken memory that nobody planned";
  const size_t planned = ops.scratch_bytes({.spec = model.spec,
                                            .act = act,
                                            .max_rows = limits.max_rows,
                                            .max_logit_rows = limits.max_logit_rows,
                                            .max_seqs = limits.max_seqs,
                                            .max_context = limits.max_context,
                                            .formats = formats});
  EXPECT_LE(held, planned);
  EXPECT_GE(held, planned / 2) << "the plan is wasteful";
}

TEST(StepExecutor, StepsTakeNoScratchThatWasNotPlanned) {
  for (const std::string& dir : small_models()) {
    if (!dir.ends_with("/qwen3") && !dir.ends_with("/ernie45_moe") &&
        !dir.ends_with("/deepseek_v3"))
      continue;
    check_scratch(dir, DType::kF32, 3, cpu::best_isa());
    check_scratch(dir, DType::kBF16, 1, cpu::best_isa());
    check_scratch(dir, DType::kBF16, 2, cpu::Isa::kBaseline);  // rows are converted to float32
    for (const model::Scheme& scheme : model::schemes()) {
      check_scratch(dir, DType::kBF16, 2, cpu::best_isa(), scheme.name);
      check_scratch(dir, DType::kF32, 1, cpu::Isa::kBaseline, scheme.name);
    }
  }
}

// A backend whose clock advances by a quarter of a second from stamp to stamp.
class ClockedOps final : public reference::ReferenceOps {
 public:
  uint64_t stamp() override {
    ++stamps;
    return static_cast<uint64_t>(stamps);
  }
  double seconds_between(uint64_t from, uint64_t to) override {
    asked.push_back({from, to});
    return 0.25;
  }
  void bind_thread() override { bound = std::this_thread::get_id(); }
  void embed(Tensor out, Tensor table, Tensor ids) override {
    if (full) throw std::bad_alloc();
    ReferenceOps::embed(out, table, ids);
  }
  bool full = false;  // no memory is left
  int stamps = 0;
  std::vector<std::pair<uint64_t, uint64_t>> asked;
  std::thread::id bound;
};

class ClockedTest : public testing::Test {
 protected:
  ClockedTest()
      : folder_(testing::UnitTest::GetInstance()->current_test_info()->name()),
        model_(model::load_model(folder_.path(), model::read_model_config(folder_.path()),
                                 {.format = model::LoadFormat::kDummy}, ops_)),
        kv_(model_.spec, kBlocks, kBlock, {.dtype = DType::kF32}, {}),
        host_(model_.spec, 4, kBlock, {.dtype = DType::kF32}),
        executor_(model_, ops_, mesh_, kv_.layers(), {.limits = limits_, .host = &host_}) {}

  const sched::Limits limits_{
      .max_seqs = 4, .max_rows = 64, .max_context = 200, .max_logit_rows = 8};
  DummyFolder folder_;
  ClockedOps ops_;
  model::LoadedModel model_;
  model::KvCache kv_;
  model::HostBlocks host_;
  comm::Mesh mesh_ = comm::make_solo_mesh();
  StepExecutor executor_;
};

TEST_F(ClockedTest, CopiesAreTimedByTheBackendsOwnClock) {
  StepPlan with = plan_of(1, 1, 0, 8), without = plan_of(2, 1, 8, 8);
  with.saves = {{.block = 3, .host = 1}};
  executor_.launch(with);
  executor_.launch(without);
  EXPECT_EQ(ops_.stamps, 2) << "one before the copies and one behind them, where there are any";
  EXPECT_EQ(executor_.collect().copy_seconds, 0.25);
  EXPECT_EQ(ops_.asked, (std::vector<std::pair<uint64_t, uint64_t>>{{1, 2}}));
  EXPECT_EQ(executor_.collect().copy_seconds, 0);
}

TEST_F(ClockedTest, WhatAStepThrowsReachesWhoWaitsForIt) {
  HostRunner runner(executor_);
  ops_.full = true;
  runner.launch(plan_of(1, 1, 0, 8));
  runner.launch(plan_of(2, 1, 8, 8));  // planned before the failure is known
  EXPECT_THROW(runner.wait(1), std::bad_alloc);
  EXPECT_THROW(runner.wait(2), std::bad_alloc);
}

TEST_F(ClockedTest, TheThreadThatDrivesTheDeviceBindsIt) {
  {
    HostRunner runner(executor_);
    runner.launch(plan_of(1, 1, 0, 8));
    runner.wait(1);
    EXPECT_NE(ops_.bound, std::thread::id());
    EXPECT_NE(ops_.bound, std::this_thread::get_id());
  }
  ops_.bound = {};
  DeviceRunner runner(executor_);
  kv::CacheIndex cache(kBlocks, kBlock, false);
  sched::Scheduler scheduler(limits_, cache);
  Queue<Command> inbox;
  Engine engine(
      scheduler, runner, inbox, [](auto) {}, 1);
  inbox.close();
  const std::atomic<bool> abort = false;
  std::thread::id engines;
  std::thread([&] {
    engines = std::this_thread::get_id();
    engine.run(abort);
  }).join();
  EXPECT_EQ(ops_.bound, engines);
}

}  // namespace
}  // namespace skiff::engine

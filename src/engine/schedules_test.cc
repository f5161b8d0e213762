// Random schedules on real models: each request's tokens and log-probabilities must be bit for bit
// those that it gets alone, however its prompt is cut, whichever requests share the step, whatever
// is preempted or found in the cache or its lower tiers, which may fail, and however many threads
// compute.
#include "engine/late_ops_testing.h"
#include "engine/schedules_testing.h"

namespace skiff::engine {
namespace {

using Models = std::vector<std::unique_ptr<Model>>;

void check_schedules(const std::string& dir, int cases, const Models& models) {
  Totals totals;
  std::set<Token> said;
  for (int seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE(testing::Message() << dir << " seed " << seed);
    std::mt19937_64 rng(static_cast<uint64_t>(seed));
    const store::TempDir storage;
    const auto requests = random_requests(rng, models[0]->weights.spec.vocab);
    // How much a run draws depends on its texts, and these on the instruction set. So a setup is
    // drawn before them: each machine tries the same ones.
    Setup setup = random_setup(rng);
    const bool drafts = rng() % 2;
    setup.tiers.always_pays = seed % 2 == 1;  // else measured times decide
    const Texts alone = texts_alone(*models[0], requests, rng, storage);
    for (const auto& [id, heard] : alone) said.insert(heard.tokens.begin(), heard.tokens.end());
    const int lives = setup.file_records > 0 ? 2 : 1;  // the file is found again
    for (int life = 0; life < lives; ++life) {
      Listener listener;
      run(*models[rng() % 3], setup, shuffled_commands(requests, 0, rng), rng,
          drafts ? &alone : nullptr, storage, listener, totals);
      ASSERT_NO_FATAL_FAILURE(expect_same(listener, alone));
    }
  }
  print(dir, totals, said.size());
  EXPECT_GT(totals.preemptions, 0u);
  EXPECT_GT(totals.evictions, 0u);
  EXPECT_GT(totals.cached, 0u);
  // Where it is measured whether a tier pays, how much comes from each is not the same in every
  // run.
  EXPECT_GT(totals.from_host + totals.from_file, 0u);
  EXPECT_GT(totals.failed, 0u);
  EXPECT_GT(totals.kept, 0);
  EXPECT_GT(totals.drafted, totals.kept);
  EXPECT_GT(said.size(), 20u) << "the text must depend on the context";
}

void check_schedules(const std::string& dir, model::LoadFormat format, DType act, int cases,
                     const std::optional<DType>& kv = std::nullopt) {
  Models models;
  for (int threads = 1; threads <= 3; ++threads)
    models.push_back(std::make_unique<Model>(dir, format, act, make_cpu_ops(threads), kv));
  check_schedules(dir, cases, models);
}

TEST(Schedules, DummyWeightsInFloat32) {
  DummyFolder folder("schedules_f32");
  check_schedules(folder.path(), model::LoadFormat::kDummy, DType::kF32, 50);
}

TEST(Schedules, DummyWeightsInBFloat16) {
  DummyFolder folder("schedules_bf16");
  check_schedules(folder.path(), model::LoadFormat::kDummy, DType::kBF16, 50);
}

// Blocks are loaded beside rows, and no sooner than somebody waits for them.
TEST(Schedules, LateLoads) {
  DummyFolder folder("schedules_late");
  int begun = 0;
  for (const DType act : {DType::kF32, DType::kBF16}) {
    Models models;
    std::vector<LateOps*> late;
    for (int i = 0; i < 3; ++i) {
      auto ops = std::make_unique<LateOps>();
      late.push_back(ops.get());
      models.push_back(
          std::make_unique<Model>(folder.path(), model::LoadFormat::kDummy, act, std::move(ops)));
    }
    check_schedules(folder.path(), 50, models);
    for (const LateOps* ops : late) begun += ops->begun;
  }
  EXPECT_GT(begun, 20);
}

// Prefix hits, preemptions, tiers and rejected drafts over a cache whose rows are quantized.
TEST(Schedules, QuantizedCaches) {
  DummyFolder folder("schedules_kv");
  for (const DType kv : {DType::kI8, DType::kF8E4M3, DType::kU4}) {
    check_schedules(folder.path(), model::LoadFormat::kDummy, DType::kF32, 25, kv);
    check_schedules(folder.path(), model::LoadFormat::kDummy, DType::kBF16, 25, kv);
  }
}

// The same over latents in 8 bits.
TEST(Schedules, QuantizedLatents) {
  const std::string dir = std::string(SKIFF_SOURCE_DIR) + "/tests/golden/deepseek_v3";
  check_schedules(dir, model::LoadFormat::kAuto, DType::kF32, 25, DType::kF8E4M3);
  check_schedules(dir, model::LoadFormat::kAuto, DType::kBF16, 25, DType::kF8E4M3);
}

TEST(Schedules, SmallCheckpoints) {
  const auto folders = small_models();
  if (folders.empty()) GTEST_SKIP() << "no checkpoints in tests/golden or models/demo";
  for (const std::string& dir : folders)
    if (!dir.ends_with("/demo")) check_schedules(dir, model::LoadFormat::kAuto, DType::kF32, 30);
}

void check_demo_model(int cases) {
  const auto folders = small_models();
  if (folders.empty() || !folders.back().ends_with("/demo")) GTEST_SKIP() << "no models/demo";
  check_schedules(folders.back(), model::LoadFormat::kAuto, DType::kF32, cases);
}

TEST(Schedules, DemoModel) { check_demo_model(50); }
// Runs for minutes: --gtest_also_run_disabled_tests.
TEST(Schedules, DISABLED_DemoModelAtLength) { check_demo_model(200); }

}  // namespace
}  // namespace skiff::engine

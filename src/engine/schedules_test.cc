// Random schedules on real models: each request's tokens and log-probabilities must be bit for bit
// those that it gets alone, however its prompt is cut, whichever requests share the step, whatever
// is preempted or found in the cache or its lower tiers, which may fail, and however many threads
// compute.
#include <gtest/gtest.h>

#include <bit>
#include <cstdio>
#include <functional>
#include <set>

#include "engine/device_runner.h"
#include "engine/fake_tier_io_testing.h"
#include "engine/model_testing.h"
#include "engine/random_case_testing.h"
#include "engine/tier_thread.h"
#include "store/temp_dir_testing.h"

namespace skiff::engine {
namespace {

struct Model {
  Model(const std::string& dir, model::LoadFormat format, DType act, int threads)
      : act(act),
        ops(make_cpu_ops(threads)),
        weights(model::load_model(
            dir, model::read_model_config(dir),
            {.precision = uniform_precision(act), .format = format, .dummy_seed = 5}, *ops)) {}
  DType act;
  std::unique_ptr<Ops> ops;
  model::LoadedModel weights;
};

constexpr Device kOther{Device::kCuda, 0};  // a device that computes asynchronously

struct Setup {
  int block_size = 16, num_blocks = 64;
  sched::Limits limits{.max_seqs = 1, .max_rows = 256, .max_context = 200, .max_logit_rows = 256};
  size_t depth = 1;
  Captures captures;       // steps are filled up to these
  bool own_thread = true;  // the device's; else it is asked and fetched from
  bool share = false;
  kv::TierConfig tiers;
  int file_records = 0;
  double faults = 0;    // how often jobs of the file fail
  bool damage = false;  // bytes of the file are changed meanwhile
};

// The cache's file with its thread, some of whose jobs fail and leave arbitrary bytes in their host
// blocks.
class FaultyTier : public TierIo {
 public:
  FaultyTier(std::unique_ptr<store::BlockStore> store, const model::HostBlocks& host,
             Queue<Command>& inbox, double faults, uint64_t seed)
      : host_(host),
        inbox_(inbox),
        fails_(faults),
        rng_(seed),
        thread_(
            work_on(std::move(store)), [&host](int host_block) { return host.block(host_block); },
            inbox, kPatient) {}
  void start(kv::TierJob job) override {
    if (!fails_(rng_)) return thread_.start(std::move(job));
    if (job.kind == kv::TierJob::Kind::kRead)
      std::ranges::generate(host_.block(job.host_block),
                            [&] { return static_cast<std::byte>(rng_()); });
    inbox_.push(TierDone{job.id, false});
  }

 private:
  const model::HostBlocks& host_;
  Queue<Command>& inbox_;
  std::bernoulli_distribution fails_;
  std::mt19937_64 rng_;
  TierThread thread_;
};

// Hands the scheduler drafts: mostly the right tokens, which are known because the requests have
// run alone before.
class GuessingRunner : public Runner {
 public:
  using Text = std::function<const std::vector<Token>&(SeqId)>;
  GuessingRunner(Runner& runner, Text text, uint64_t seed)
      : runner_(runner), text_(std::move(text)), rng_(seed) {}
  void launch(const StepPlan& plan) override {
    plan_ = plan;
    runner_.launch(plan);
  }
  StepResult wait(uint64_t step) override {
    StepResult result = runner_.wait(step);
    for (size_t i = 0; i < plan_.spans.size(); ++i) guess(plan_.spans[i], result, i);
    return result;
  }
  long kept = 0, drafted = 0;

 private:
  void guess(const Span& span, StepResult& result, size_t i) {
    drafted += span.draft;
    if (!span.sample) return;
    kept += static_cast<long>(result.tokens[i].size()) - 1;
    size_t& said = said_[span.seq];
    said += result.tokens[i].size();
    const std::vector<Token>& text = text_(span.seq);
    for (size_t d = 0; d < rng_() % 4 && said + d < text.size(); ++d)
      result.drafts[i].push_back(rng_() % 4 ? text[said + d] : static_cast<Token>(rng_() % 50));
  }

  Runner& runner_;
  Text text_;
  std::mt19937_64 rng_;
  StepPlan plan_;
  std::map<SeqId, size_t> said_;
};

struct Totals {
  uint64_t preemptions = 0, evictions = 0, cached = 0;
  uint64_t from_host = 0, from_file = 0, written = 0, failed = 0;
  long kept = 0, drafted = 0;
};

using Texts = std::map<SeqId, Heard>;

std::unique_ptr<store::BlockStore> open_store(const Setup& setup, const model::HostBlocks& host,
                                              const store::TempDir& dir) {
  if (setup.file_records == 0) return nullptr;
  const size_t record = (host.block_bytes() / 4096 + 2) * 4096;
  return store::BlockStore::open(
      {.dir = dir.path(),
       .max_bytes = (static_cast<size_t>(setup.file_records) + 1) * record,
       .payload = host.block_bytes(),
       .block_size = setup.block_size});
}

void run(Model& model, Setup setup, std::vector<Command> commands, std::mt19937_64& rng,
         const Texts* guesses, const store::TempDir& dir, Listener& listener, Totals& totals) {
  model::KvCache kv(model.weights.spec, setup.num_blocks, setup.block_size, model.act,
                    model.ops->device());
  model::HostBlocks host(model.weights.spec, setup.tiers.host_blocks, setup.block_size, model.act);
  auto store = open_store(setup, host, dir);
  kv::BlockSources sources;
  if (store)
    sources.push_back(
        std::make_unique<kv::RecordSource>(store->num_records(), /*seed=*/0, store->found()));
  kv::CacheIndex cache(setup.num_blocks, setup.block_size, setup.share, /*seed=*/0, setup.tiers,
                       std::move(sources));
  sched::Scheduler scheduler(setup.limits, cache);
  comm::Mesh mesh = comm::make_solo_mesh();
  StepExecutor executor(
      model.weights, *model.ops, mesh, kv.layers(),
      {.act = model.act, .limits = setup.limits, .host = &host, .captures = setup.captures});
  const auto runner_of_device = make_runner(executor, setup.own_thread ? Device{} : kOther);
  Runner& device = *runner_of_device;
  GuessingRunner guessing(
      device, [&](SeqId id) -> const auto& { return guesses->at(id).tokens; }, rng());
  Runner& runner = guesses != nullptr ? guessing : device;
  Queue<Command> inbox;
  std::unique_ptr<TierIo> tier;
  if (store)
    tier = std::make_unique<FaultyTier>(std::move(store), host, inbox, setup.faults, rng());
  Engine engine(scheduler, runner, inbox, [&](auto e) { listener.hear(e); }, setup.depth,
                {tier.get()});
  run_commands(engine, inbox, std::move(commands), rng, [&](bool) {
    if (setup.damage && rng() % 4 == 0) dir.damage(rng);
  });
  EXPECT_EQ(cache.num_free(), setup.num_blocks);
  totals.preemptions += scheduler.stats().preemptions;
  totals.cached += scheduler.stats().cached_tokens;
  totals.evictions += cache.evictions();
  totals.from_host += cache.tiers().stats().host_tokens;
  totals.from_file += cache.tiers().stats().file_tokens;
  totals.written += cache.tiers().stats().writes;
  totals.failed += cache.tiers().stats().failures;
  totals.kept += guessing.kept;
  totals.drafted += guessing.drafted;
}

SamplingParams random_params(std::mt19937_64& rng) {
  SamplingParams p;
  p.temperature = rng() % 3 ? 1.1f : 0.f;
  if (rng() % 2) p.top_p = 0.9f;
  if (rng() % 2) p.top_k = 40;
  p.seed = rng();
  if (rng() % 3 == 0) p.logprobs = static_cast<int>(rng() % 4);
  if (rng() % 4 == 0) p.prompt_logprobs = static_cast<int>(rng() % 3);
  if (rng() % 3 == 0) p.min_tokens = 6;
  if (rng() % 3 == 0) {
    p.repetition = 1.2f;
    p.frequency = 0.3f;
    p.presence = 0.2f;
  }
  if (rng() % 4 == 0) p.logit_bias = {{7, 1.5f}, {9, -2.f}};
  return p;
}

std::vector<NewSequence> random_requests(std::mt19937_64& rng, int vocab) {
  const auto token = [&] { return static_cast<Token>(rng() % static_cast<uint64_t>(vocab)); };
  std::vector<Token> shared(24);
  for (Token& t : shared) t = token();
  std::vector<NewSequence> all;
  for (SeqId id = 1; id <= 6; ++id) {
    NewSequence s;
    s.id = id;
    s.prompt.assign(shared.begin(), shared.begin() + static_cast<long>(rng() % 25));
    for (size_t i = 0, own = 1 + rng() % 20; i < own; ++i) s.prompt.push_back(token());
    s.params = random_params(rng);
    s.stop.max_tokens = 1 + static_cast<int>(rng() % 24);
    if (rng() % 2) s.stop.tokens = {token(), token(), token()};
    s.priority = static_cast<int>(rng() % 2);
    all.push_back(std::move(s));
  }
  return all;
}

Setup random_setup(std::mt19937_64& rng) {
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(rng() % static_cast<uint64_t>(high - low + 1));
  };
  Setup s;
  s.block_size = pick(1, 16);
  // A request alone needs up to 44 + 24 positions; there are few more than that.
  s.num_blocks = pick(70, 95) / s.block_size + 1;
  s.limits.max_seqs = pick(2, 5);
  s.limits.max_rows = pick(s.limits.max_seqs, 40);
  s.limits.max_logit_rows = s.limits.max_seqs + pick(0, 12);
  s.limits.chunked_prefill = rng() % 4 != 0;
  s.limits.policy.long_prompt = pick(4, 40);
  s.limits.policy.long_chunk = pick(0, 12);
  s.limits.policy.max_partial = pick(0, 2);
  s.limits.policy.reserve = pick(0, 4);
  if (rng() % 2) s.limits.policy.cost = random_cost(rng);
  if (rng() % 2) s.limits.policy.step_seconds = 1e-3 * pick(1, 30);
  s.depth = static_cast<size_t>(pick(1, 2));
  if (rng() % 2) s.captures.sizes = {(s.limits.max_seqs + 1) / 2, s.limits.max_seqs};
  if (rng() % 2) s.captures.drafts = pick(1, 3);
  s.own_thread = rng() % 2;
  s.share = rng() % 4 != 0;
  if (!s.share || rng() % 4 == 0) return s;
  s.tiers.host_blocks = pick(1, 100 / s.block_size + 1);
  if (rng() % 3 == 0) return s;
  s.file_records = pick(1, 160 / s.block_size + 1);
  s.tiers.spill = rng() % 2;
  s.tiers.saves_per_step = pick(1, 16);
  if (rng() % 2) s.faults = 0.1 * pick(0, 5);
  s.damage = rng() % 3 == 0;
  return s;
}

bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}
bool same(const TokenLogprob& a, const TokenLogprob& b) {
  return a.token == b.token && same_bits(a.logprob, b.logprob);
}
void expect_same(const std::vector<PositionLogprobs>& got,
                 const std::vector<PositionLogprobs>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(same(got[i].chosen, want[i].chosen)) << "position " << i;
    ASSERT_EQ(got[i].rank, want[i].rank);
    ASSERT_EQ(got[i].top.size(), want[i].top.size());
    for (size_t k = 0; k < got[i].top.size(); ++k) ASSERT_TRUE(same(got[i].top[k], want[i].top[k]));
  }
}

void expect_same(const Listener& got, const Texts& want) {
  for (const auto& [id, alone] : want) {
    const Heard& heard = got.of(id);
    ASSERT_EQ(heard.tokens, alone.tokens) << "sequence " << id;
    ASSERT_EQ(heard.finish, alone.finish);
    ASSERT_NO_FATAL_FAILURE(expect_same(heard.logprobs, alone.logprobs));
    ASSERT_NO_FATAL_FAILURE(expect_same(heard.prompt_logprobs, alone.prompt_logprobs));
  }
}

// Computes each request alone, without any cache.
Texts texts_alone(Model& model, const std::vector<NewSequence>& requests, std::mt19937_64& rng,
                  const store::TempDir& dir) {
  Texts alone;
  Totals ignored;
  for (const NewSequence& in : requests) {
    Listener one;
    run(model, {}, {in}, rng, nullptr, dir, one, ignored);
    alone[in.id] = one.of(in.id);
  }
  return alone;
}

void print(const std::string& dir, const Totals& t, size_t different) {
  std::printf(
      "%s: preemptions %zu, evictions %zu, cached tokens %zu (%zu from host memory, %zu from the "
      "file), blocks written %zu, failed %zu, drafts kept %ld of %ld, different tokens %zu\n",
      dir.c_str(), t.preemptions, t.evictions, t.cached, t.from_host, t.from_file, t.written,
      t.failed, t.kept, t.drafted, different);
}

void check_schedules(const std::string& dir, model::LoadFormat format, DType act, int cases) {
  std::vector<std::unique_ptr<Model>> models;
  for (int threads = 1; threads <= 3; ++threads)
    models.push_back(std::make_unique<Model>(dir, format, act, threads));
  Totals totals;
  std::set<Token> said;
  for (int seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE(testing::Message() << dir << " seed " << seed);
    std::mt19937_64 rng(static_cast<uint64_t>(seed));
    const store::TempDir storage;
    const auto requests = random_requests(rng, models[0]->weights.spec.vocab);
    const Texts alone = texts_alone(*models[0], requests, rng, storage);
    for (const auto& [id, heard] : alone) said.insert(heard.tokens.begin(), heard.tokens.end());
    const Setup setup = random_setup(rng);
    const bool drafts = setup.depth == 1 && rng() % 2;
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
  // Whether a tier pays is measured, so how much comes from each is not the same in every run.
  EXPECT_GT(totals.from_host + totals.from_file, 0u);
  EXPECT_GT(totals.failed, 0u);
  EXPECT_GT(totals.kept, 0);
  EXPECT_GT(totals.drafted, totals.kept);
  EXPECT_GT(said.size(), 20u) << "the text must depend on the context";
}

TEST(Schedules, DummyWeightsInFloat32) {
  DummyFolder folder("schedules_f32");
  check_schedules(folder.path(), model::LoadFormat::kDummy, DType::kF32, 50);
}

TEST(Schedules, DummyWeightsInBFloat16) {
  DummyFolder folder("schedules_bf16");
  check_schedules(folder.path(), model::LoadFormat::kDummy, DType::kBF16, 50);
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

// engine/schedules_testing.h -- for tests: runs random schedules of random requests on a model.
#pragma once
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
#include "ops/kv_quant.h"
#include "store/temp_dir_testing.h"

namespace skiff::engine {

struct Model {
  Model(const std::string& dir, model::LoadFormat format, DType act, std::unique_ptr<Ops> backend,
        const std::optional<DType>& kv_dtype = std::nullopt)
      : act(act),
        kv(kv_format(kv_dtype.value_or(act))),
        ops(std::move(backend)),
        weights(model::load_model(
            dir, model::read_model_config(dir),
            {.precision = uniform_precision(act), .format = format, .dummy_seed = 5}, *ops)) {}
  DType act;
  KvFormat kv;
  std::unique_ptr<Ops> ops;
  model::LoadedModel weights;
};

inline constexpr Device kOther{Device::kCuda, 0};  // a device that computes asynchronously

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

inline std::unique_ptr<store::BlockStore> open_store(const Setup& setup,
                                                     const model::HostBlocks& host,
                                                     const store::TempDir& dir) {
  if (setup.file_records == 0) return nullptr;
  const size_t record = (host.block_bytes() / 4096 + 2) * 4096;
  return store::BlockStore::open(
      {.dir = dir.path(),
       .max_bytes = (static_cast<size_t>(setup.file_records) + 1) * record,
       .payload = host.block_bytes(),
       .block_size = setup.block_size});
}

inline void run(Model& model, Setup setup, std::vector<Command> commands, std::mt19937_64& rng,
                const Texts* guesses, const store::TempDir& dir, Listener& listener,
                Totals& totals) {
  model::KvCache kv(model.weights.spec, setup.num_blocks, setup.block_size, model.kv,
                    model.ops->device());
  model::HostBlocks host(model.weights.spec, setup.tiers.host_blocks, setup.block_size, model.kv);
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

inline SamplingParams random_params(std::mt19937_64& rng) {
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

// Bounds of random requests: tokens of the prompts' common beginning, of each one's own, of
// outputs.
struct Lengths {
  int requests = 6, shared = 24, own = 20, output = 24;
};

inline std::vector<NewSequence> random_requests(std::mt19937_64& rng, int vocab,
                                                const Lengths& most = {}) {
  const auto token = [&] { return static_cast<Token>(rng() % static_cast<uint64_t>(vocab)); };
  const auto up_to = [&](int n) { return static_cast<long>(rng() % static_cast<uint64_t>(n + 1)); };
  std::vector<Token> shared(static_cast<size_t>(most.shared));
  for (Token& t : shared) t = token();
  std::vector<NewSequence> all;
  for (SeqId id = 1; id <= static_cast<SeqId>(most.requests); ++id) {
    NewSequence s;
    s.id = id;
    s.prompt.assign(shared.begin(), shared.begin() + up_to(most.shared));
    for (long own = 1 + up_to(most.own - 1); own > 0; --own) s.prompt.push_back(token());
    s.params = random_params(rng);
    s.stop.max_tokens = 1 + static_cast<int>(up_to(most.output - 1));
    if (rng() % 2) s.stop.tokens = {token(), token(), token()};
    s.priority = static_cast<int>(rng() % 2);
    all.push_back(std::move(s));
  }
  return all;
}

inline bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}
inline bool same(const TokenLogprob& a, const TokenLogprob& b) {
  return a.token == b.token && same_bits(a.logprob, b.logprob);
}
inline void expect_same(const std::vector<PositionLogprobs>& got,
                        const std::vector<PositionLogprobs>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(same(got[i].chosen, want[i].chosen)) << "position " << i;
    ASSERT_EQ(got[i].rank, want[i].rank);
    ASSERT_EQ(got[i].top.size(), want[i].top.size());
    for (size_t k = 0; k < got[i].top.size(); ++k) ASSERT_TRUE(same(got[i].top[k], want[i].top[k]));
  }
}

inline void expect_same(const Listener& got, const Texts& want) {
  for (const auto& [id, alone] : want) {
    const Heard& heard = got.of(id);
    ASSERT_EQ(heard.tokens, alone.tokens) << "sequence " << id;
    ASSERT_EQ(heard.finish, alone.finish);
    ASSERT_NO_FATAL_FAILURE(expect_same(heard.logprobs, alone.logprobs));
    ASSERT_NO_FATAL_FAILURE(expect_same(heard.prompt_logprobs, alone.prompt_logprobs));
  }
}

// Computes each request alone, without any cache.
inline Texts texts_alone(Model& model, const std::vector<NewSequence>& requests,
                         std::mt19937_64& rng, const store::TempDir& dir, const Setup& setup = {}) {
  Texts alone;
  Totals ignored;
  for (const NewSequence& in : requests) {
    Listener one;
    run(model, setup, {in}, rng, nullptr, dir, one, ignored);
    alone[in.id] = one.of(in.id);
  }
  return alone;
}

inline void print(const std::string& dir, const Totals& t, size_t different) {
  std::printf(
      "%s: preemptions %zu, evictions %zu, cached tokens %zu (%zu from host memory, %zu from the "
      "file), blocks written %zu, failed %zu, drafts kept %ld of %ld, different tokens %zu\n",
      dir.c_str(), t.preemptions, t.evictions, t.cached, t.from_host, t.from_file, t.written,
      t.failed, t.kept, t.drafted, different);
}

}  // namespace skiff::engine

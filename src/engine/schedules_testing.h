// engine/schedules_testing.h -- for tests: runs random schedules of random requests on a model.
#pragma once
#include <gtest/gtest.h>

#include <barrier>
#include <bit>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "arch/shard.h"
#include "comm/devices/group.h"
#include "engine/device_runner.h"
#include "engine/drafting_runner.h"
#include "engine/fake_tier_io_testing.h"
#include "engine/group_runner.h"
#include "engine/lockstep_runner.h"
#include "engine/model_testing.h"
#include "engine/random_case_testing.h"
#include "engine/side_by_side.h"
#include "engine/tier_thread.h"
#include "ops/kv_quant.h"
#include "store/temp_dir_testing.h"

namespace skiff::engine {

// A model, or a rank's part of one.
struct Model {
  Model(const std::string& dir, model::LoadFormat format, DType act, std::unique_ptr<Ops> backend,
        const std::optional<DType>& kv_dtype = std::nullopt, const model::RankOf& part = {},
        Moe::Deal deal = Moe::kSlices, std::string_view quantization = {})
      : act(act),
        kv(kv_format(kv_dtype.value_or(act))),
        ops(std::move(backend)),
        weights(load(dir, format, part, config_of(dir, deal), quantization)) {}
  static model::ModelConfig config_of(const std::string& dir, Moe::Deal deal) {
    model::ModelConfig config = model::read_model_config(dir);
    if (deal == Moe::kWhole) deal_experts_whole(config.spec);
    return config;
  }
  model::LoadedModel load(const std::string& dir, model::LoadFormat format,
                          const model::RankOf& part, const model::ModelConfig& config,
                          std::string_view quantization) {
    return model::load_model(
        dir, config,
        {.precision = uniform_precision(act),
         .schemes = model::choose_schemes(quantization, /*config=*/{}, config.spec),
         .format = format,
         .dummy_seed = 5,
         .part = part},
        *ops);
  }
  size_t ranks() const { return 1 + others.size(); }
  Model& rank(size_t index) { return index == 0 ? *this : *others[index - 1]; }

  DType act;
  KvFormat kv;
  std::unique_ptr<Ops> ops;
  model::LoadedModel weights;
  std::vector<std::unique_ptr<Model>> others;   // the ranks behind this one
  std::unique_ptr<devices::DeviceGroup> group;  // where the ranks have a device each
};

// A model cut among `size` ranks; those of other numbers have `threads` threads each.
inline std::unique_ptr<Model> cut_model(const std::string& dir, model::LoadFormat format, DType act,
                                        int size, int threads, Moe::Deal deal) {
  const auto rank = [&](int index) {
    return std::make_unique<Model>(dir, format, act, make_cpu_ops(index % 2 ? 1 : threads),
                                   std::nullopt, model::RankOf{.rank = index, .size = size}, deal);
  };
  auto first = rank(0);
  for (int index = 1; index < size; ++index) first->others.push_back(rank(index));
  return first;
}

inline constexpr Device kOther{Device::kCuda, 0};  // a device that computes asynchronously

// How many drafts there are at most, and how many of four are right.
struct Guesses {
  int most = 3, right = 3;
};

// What was drafted for each sequence, by how many tokens it had said. Where bits depend on a
// request alone, so do its drafts, however the passes behind a step were made. Thread-safe.
class DraftsHeard {
 public:
  // Near the end of a sequence's blocks there are fewer.
  void hear(SeqId seq, size_t said, const std::vector<Token>& drafts) {
    if (drafts.empty()) return;
    const std::lock_guard lock(mutex_);
    const auto [known, is_new] = behind_.try_emplace({seq, said}, drafts);
    if (is_new) return;
    std::vector<Token>& before = known->second;
    const auto both = static_cast<std::ptrdiff_t>(std::min(before.size(), drafts.size()));
    compared += both;
    EXPECT_TRUE(std::equal(drafts.begin(), drafts.begin() + both, before.begin()))
        << "sequence " << seq << " behind " << said << " tokens";
    if (drafts.size() > before.size()) before = drafts;
  }

  long compared = 0;

 private:
  std::mutex mutex_;
  std::map<std::pair<SeqId, size_t>, std::vector<Token>> behind_;
};

struct Setup {
  int block_size = 16, num_blocks = 64;
  sched::Limits limits{.max_seqs = 1, .max_rows = 256, .max_context = 200, .max_logit_rows = 256};
  size_t depth = 1;
  Captures captures;       // steps are filled up to these
  bool own_thread = true;  // the device's; else it is asked and fetched from
  bool share = false;
  kv::TierConfig tiers;
  int file_records = 0;
  double faults = 0;                            // how often jobs of the file fail
  bool damage = false;                          // bytes of the file are changed meanwhile
  Guesses guesses;                              // if the texts are known
  std::optional<draft::Settings> drafts;        // else: how tokens are drafted
  const model::LoadedModel* drafter = nullptr;  // else: the model that drafts, on the same ops
  std::vector<const model::LoadedModel*> other_drafters;  // and those of the ranks behind the first
  bool drafter_whole = false;                             // every rank computes all of it
  int draft_tokens = 1;
  std::optional<bool> chains;  // whether steps may be chained; empty: by chance
  DraftCheck check;
  int pauses = 0;  // so many of four runs of steps have no drafts behind them
  bool records =
      false;  // steps are recorded before the first one, and replicas begin their service
  DraftsHeard* heard = nullptr;  // what is told the drafts of a drafter
  // Where the model is a replica that shares experts: all of them run at the same time, and meet
  // before the first step and behind the last one.
  struct {
    Lockstep* lockstep = nullptr;
    int replica = 0;
    std::barrier<>* meeting = nullptr;
  } shared;
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

// Hands the scheduler drafts, some of which are the right tokens: these are known because the
// requests have run alone before.
class GuessingRunner : public Runner {
 public:
  using Text = std::function<const std::vector<Token>&(SeqId)>;
  GuessingRunner(Runner& runner, Text text, const Guesses& guesses, uint64_t seed)
      : runner_(runner), text_(std::move(text)), guesses_(guesses), rng_(seed) {}
  void bind_thread() override { runner_.bind_thread(); }
  void launch(const StepPlan& plan) override {
    flying_.push_back(plan.spans);
    runner_.launch(plan);
  }
  StepResult wait(uint64_t step) override {
    StepResult result = runner_.wait(step);
    for (size_t i = 0; i < flying_.front().size(); ++i) guess(flying_.front()[i], result, i);
    flying_.pop_front();
    return result;
  }

 private:
  void guess(const Span& span, StepResult& result, size_t i) {
    if (!span.sample) return;
    size_t& said = said_[span.seq];
    said += result.tokens[i].size();
    const std::vector<Token>& text = text_(span.seq);
    const size_t count = rng_() % (static_cast<size_t>(guesses_.most) + 1);
    for (size_t d = 0; d < count && said + d < text.size(); ++d) {
      const bool right = static_cast<int>(rng_() % 4) < guesses_.right;
      result.drafts[i].push_back(right ? text[said + d] : static_cast<Token>(rng_() % 50));
    }
  }

  Runner& runner_;
  Text text_;
  const Guesses guesses_;
  std::mt19937_64 rng_;
  std::deque<std::vector<Span>> flying_;
  std::map<SeqId, size_t> said_;
};

// Decides at random behind which steps tokens are drafted, mostly as behind the step before.
class PausingRunner : public Runner {
 public:
  PausingRunner(std::unique_ptr<Runner> runner, int pauses, uint64_t seed)
      : runner_(std::move(runner)), pauses_(pauses), rng_(seed) {}
  void bind_thread() override { runner_->bind_thread(); }
  void launch(const StepPlan& plan) override {
    if (plan.chained) return runner_->launch(plan);
    if (rng_() % 4 == 0) drafts_ = static_cast<int>(rng_() % 4) >= pauses_;
    StepPlan decided = plan;
    decided.drafts = drafts_;
    runner_->launch(decided);
  }
  StepResult wait(uint64_t step) override { return runner_->wait(step); }

 private:
  std::unique_ptr<Runner> runner_;
  const int pauses_;
  std::mt19937_64 rng_;
  bool drafts_ = true;
};

// Tells how many rows the step has that has most.
class WidestRunner : public Runner {
 public:
  WidestRunner(Runner& runner, int& widest) : runner_(runner), widest_(widest) {}
  void bind_thread() override { runner_.bind_thread(); }
  void launch(const StepPlan& plan) override {
    widest_ = std::max(widest_, static_cast<int>(plan.tokens.size()));
    runner_.launch(plan);
  }
  StepResult wait(uint64_t step) override { return runner_.wait(step); }
  void on_ranks(const RankWork& work) override { runner_.on_ranks(work); }
  int prompt_rows_beside() const override { return runner_.prompt_rows_beside(); }

 private:
  Runner& runner_;
  int& widest_;
};

// Tells what is drafted behind each step.
class HearingRunner : public Runner {
 public:
  HearingRunner(std::unique_ptr<Runner> runner, DraftsHeard& heard)
      : runner_(std::move(runner)), heard_(heard) {}
  void bind_thread() override { runner_->bind_thread(); }
  void launch(const StepPlan& plan) override {
    flying_.push_back(plan.spans);
    runner_->launch(plan);
  }
  StepResult wait(uint64_t step) override {
    StepResult result = runner_->wait(step);
    for (size_t i = 0; i < flying_.front().size(); ++i) {
      const SeqId seq = flying_.front()[i].seq;
      heard_.hear(seq, said_[seq] += result.tokens[i].size(), result.drafts[i]);
    }
    flying_.pop_front();
    return result;
  }

 private:
  std::unique_ptr<Runner> runner_;
  DraftsHeard& heard_;
  std::deque<std::vector<Span>> flying_;
  std::map<SeqId, size_t> said_;
};

struct Totals {
  int widest = 0;  // rows of the step that had most
  uint64_t preemptions = 0, evictions = 0, cached = 0;
  uint64_t from_host = 0, from_file = 0, written = 0, failed = 0;
  long kept = 0, drafted = 0, steps = 0, chained = 0;
  long compared = 0;  // drafts, with those that were heard before
};

using Texts = std::map<SeqId, Heard>;

// The layers of a block: those of the model, then those of a drafter.
inline ModelSpec cached_spec(ModelSpec spec, const model::LoadedModel* drafter) {
  if (drafter != nullptr)
    spec.layers.insert(spec.layers.end(), drafter->spec.layers.begin(), drafter->spec.layers.end());
  return spec;
}

// What a rank computes steps with.
struct RankOfRun {
  RankOfRun(Model& model, comm::Mesh& mesh, const Setup& setup, model::HostBlocks part)
      : kv(cached_spec(model.weights.spec, setup.drafter), setup.num_blocks, setup.block_size,
           model.kv, model.ops->device()),
        host(std::move(part)),
        executor(model.weights, *model.ops, mesh, kv.layers(),
                 {.act = model.act,
                  .limits = setup.limits,
                  .host = &host,
                  .captures = setup.captures,
                  .drafter = make_drafter(model, mesh, setup),
                  .check = setup.check,
                  .chains = setup.chains.value_or(false)}) {}
  ModelDrafter* make_drafter(Model& model, comm::Mesh& mesh, const Setup& setup) {
    if (setup.drafter == nullptr) return nullptr;
    const auto rank = static_cast<size_t>(mesh.tp->rank());
    return &drafter.emplace(
        rank == 0 ? *setup.drafter : *setup.other_drafters.at(rank - 1), *model.ops,
        setup.drafter_whole ? alone : mesh, kv.layers().subspan(model.weights.spec.layers.size()),
        ModelDrafter::Options{.act = model.act,
                              .limits = setup.limits,
                              .tokens = setup.draft_tokens,
                              .sampled = setup.check.rule == DraftRule::kRejection,
                              .captures = setup.captures.sizes});
  }
  model::KvCache kv;
  model::HostBlocks host;
  comm::Mesh alone = comm::make_solo_mesh();
  std::optional<ModelDrafter> drafter;
  StepExecutor executor;
};

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

// Has each rank record its steps, and begins the service of its groups.
inline void begin_recorded(Model& model, std::vector<comm::Mesh>& meshes,
                           std::deque<RankOfRun>& parts, int blocks) {
  side_by_side(
      parts.size(),
      [&](size_t rank) {
        model.rank(rank).ops->bind_thread();
        parts[rank].executor.record(blocks);
      },
      [&](size_t rank, const std::string& why) { meshes[rank].tp->abort(why); });
  if (model.group) model.group->begin_service();
  for (const comm::Mesh& mesh : meshes) mesh.experts->begin_service();
}

inline void run(Model& model, Setup setup, std::vector<Command> commands, std::mt19937_64& rng,
                const Texts* guesses, const store::TempDir& dir, Listener& listener,
                Totals& totals) {
  const auto ranks = static_cast<int>(model.ranks());
  // Drafts from texts would stand behind those that lie on the device.
  const bool by_chance = rng() % 3 > 0;
  setup.chains =
      setup.check.rule <= DraftRule::kGreedy && !setup.drafts && setup.chains.value_or(by_chance);
  model::HostBlocks host(cached_spec(model.weights.spec, setup.drafter), setup.tiers.host_blocks,
                         setup.block_size, model.kv, {}, ranks);
  auto store = open_store(setup, host, dir);
  kv::BlockSources sources;
  if (store)
    sources.push_back(
        std::make_unique<kv::RecordSource>(store->num_records(), /*seed=*/0, store->found()));
  kv::CacheIndex cache(setup.num_blocks, setup.block_size, setup.share, /*seed=*/0, setup.tiers,
                       std::move(sources));
  std::vector<comm::Mesh> meshes =
      model.group ? model.group->make_meshes() : comm::make_thread_meshes(ranks);
  std::deque<RankOfRun> parts;
  std::vector<GroupRunner::Member> members;
  for (int i = 0; i < ranks; ++i) {
    comm::Mesh& mesh = meshes[static_cast<size_t>(i)];
    if (setup.shared.lockstep)
      mesh.experts = setup.shared.lockstep->exchange(setup.shared.replica, i);
    model.rank(static_cast<size_t>(i)).ops->bind_thread();
    parts.emplace_back(model.rank(static_cast<size_t>(i)), mesh, setup, host.part(i, ranks));
    members.push_back({parts.back().executor, *mesh.tp});
  }
  if (setup.records) begin_recorded(model, meshes, parts, setup.num_blocks);
  parts[0].executor.tell_chaining(setup.limits);
  sched::Scheduler scheduler(setup.limits, cache);
  const Device place = setup.own_thread ? Device{} : kOther;
  std::unique_ptr<Runner> device;
  if (setup.shared.lockstep && ranks == 1)
    device = std::make_unique<LockstepRunner>(*setup.shared.lockstep, setup.shared.replica,
                                              make_round_work(parts[0].executor), place);
  else if (setup.shared.lockstep)
    device = std::make_unique<LockstepRunner>(
        *setup.shared.lockstep, setup.shared.replica,
        make_round_work(*setup.shared.lockstep, setup.shared.replica, members, place), place);
  else if (ranks > 1)
    device = std::make_unique<GroupRunner>(members, model.ops->device());
  else
    device = make_runner(parts[0].executor, place);
  if (setup.drafts && guesses == nullptr)
    device = std::make_unique<DraftingRunner>(std::move(device), *setup.drafts);
  if (setup.heard != nullptr)
    device = std::make_unique<HearingRunner>(std::move(device), *setup.heard);
  if (setup.pauses > 0)
    device = std::make_unique<PausingRunner>(std::move(device), setup.pauses, rng());
  GuessingRunner guessing(
      *device, [&](SeqId id) -> const auto& { return guesses->at(id).tokens; }, setup.guesses,
      rng());
  WidestRunner runner(guesses != nullptr ? guessing : *device, totals.widest);
  Queue<Command> inbox;
  std::unique_ptr<TierIo> tier;
  if (store)
    tier = std::make_unique<FaultyTier>(std::move(store), host, inbox, setup.faults, rng());
  Engine engine(scheduler, runner, inbox, [&](auto e) { listener.hear(e); }, setup.depth,
                {tier.get()});
  if (setup.shared.meeting) setup.shared.meeting->arrive_and_wait();
  run_commands(engine, inbox, std::move(commands), rng, [&](bool) {
    if (setup.damage && rng() % 4 == 0) dir.damage(rng);
  });
  if (setup.shared.meeting) setup.shared.meeting->arrive_and_wait();
  EXPECT_EQ(cache.num_free(), setup.num_blocks);
  totals.preemptions += scheduler.stats().preemptions;
  totals.cached += scheduler.stats().cached_tokens;
  totals.evictions += cache.evictions();
  totals.from_host += cache.tiers().stats().host_tokens;
  totals.from_file += cache.tiers().stats().file_tokens;
  totals.written += cache.tiers().stats().writes;
  totals.failed += cache.tiers().stats().failures;
  totals.kept += static_cast<long>(scheduler.stats().drafts.kept);
  totals.drafted += static_cast<long>(scheduler.stats().drafts.drafted);
  totals.steps += static_cast<long>(engine.steps());
  totals.chained += static_cast<long>(scheduler.stats().chained_steps);
}

inline Setup random_setup(std::mt19937_64& rng) {
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
  s.limits.policy.max_loads = s.block_size % 4;
  s.depth = static_cast<size_t>(pick(1, 2));
  if (rng() % 2) s.captures.sizes = {(s.limits.max_seqs + 1) / 2, s.limits.max_seqs};
  if (rng() % 2) s.captures.drafts = pick(1, 3);
  s.own_thread = rng() % 2;
  s.guesses = {.most = pick(1, 5), .right = pick(1, 4)};
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

// Leaves out what keeps steps from being chained.
inline void let_chain(std::vector<NewSequence>& requests) {
  for (NewSequence& request : requests) {
    const SamplingParams& p = request.params;
    request.params = {.temperature = p.temperature,
                      .top_p = p.top_p,
                      .top_k = p.top_k,
                      .seed = p.seed,
                      .logit_bias = p.logit_bias};
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
      "file), blocks written %zu, failed %zu, drafts kept %ld of %ld, steps chained %ld of %ld, "
      "different tokens %zu\n",
      dir.c_str(), t.preemptions, t.evictions, t.cached, t.from_host, t.from_file, t.written,
      t.failed, t.kept, t.drafted, t.chained, t.steps, different);
}

}  // namespace skiff::engine

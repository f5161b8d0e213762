// Random schedules with a model that remembers its tokens: whatever the scheduler does, each
// request must get the tokens that it would get alone.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "base/seconds.h"
#include "engine/fake_runner_testing.h"
#include "engine/fake_tier_io_testing.h"
#include "engine/random_case_testing.h"
#include "engine/tier_thread.h"
#include "store/temp_dir_testing.h"

namespace skiff::engine {
namespace {

struct Totals {
  long cases = 0, steps = 0, preemptions = 0, evictions = 0, cached = 0, reopened = 0, drafted = 0,
       kept = 0, cancelled = 0, stopped = 0, full = 0, cut_reports = 0;
  kv::TierStats tiers, on_disk;
};

void add(kv::TierStats& sum, const kv::TierStats& part) {
  sum.host_tokens += part.host_tokens;
  sum.file_tokens += part.file_tokens;
  sum.saves += part.saves;
  sum.loads += part.loads;
  sum.reads += part.reads;
  sum.writes += part.writes;
  sum.failures += part.failures;
  sum.skipped += part.skipped;
  sum.recomputed += part.recomputed;
  sum.waiting += part.waiting;
}

struct Setup {
  int block_size, num_blocks;
  sched::Limits limits;
  size_t depth;
  bool share, drafts;
  int most_drafts = 0, right = 0;  // see FakeRunner
  kv::TierConfig tiers;
  std::vector<int> records;  // records in each source behind host memory
  FakeTierIo::Faults faults;
  double copy_cost = 0;    // see FakeRunner
  bool stalls = false;     // the disk of a source hangs now and then
  bool restarted = false;  // the file has what the same requests left before
  bool paced = false;      // planning waits for the step in flight
};

void choose_tiers(Setup& s, std::mt19937_64& rng) {
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(rng() % static_cast<uint64_t>(high - low + 1));
  };
  if (!s.share || rng() % 4 == 0) return;
  s.tiers.host_blocks = rng() % 2 ? pick(1, 40) : pick(2, 6);
  if (rng() % 3) s.records.push_back(pick(1, 40));
  if (rng() % 4 == 0) s.records.push_back(pick(1, 40));
  s.tiers.spill = s.records.empty() || rng() % 2;
  s.tiers.saves_per_step = pick(1, 16);
  if (rng() % 2) s.faults = {.read = 0.2 * pick(0, 5), .write = 0.1 * pick(0, 5)};
  s.copy_cost = 0.3 * pick(0, 5);
  s.faults.seconds = 0.3 * pick(0, 4);
  s.stalls = rng() % 3 == 0;
}

Setup random_setup(std::mt19937_64& rng) {
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(rng() % static_cast<uint64_t>(high - low + 1));
  };
  Setup s;
  s.block_size = pick(1, 5);
  s.num_blocks = pick(40, 120) / s.block_size;
  s.limits.max_seqs = pick(1, 6);
  s.limits.max_rows = rng() % 2 ? pick(s.limits.max_seqs, 12) : pick(12, 60);
  s.limits.max_context = rng() % 4 ? 64 : 40;
  s.limits.max_logit_rows = s.limits.max_seqs + pick(0, 10);
  s.limits.chunked_prefill = rng() % 4 != 0;
  s.limits.policy = {.ageing = pick(0, 5),
                     .long_yields = pick(0, 4),
                     .yield_tokens = s.block_size,
                     .long_prompt = pick(2, 24),
                     .long_chunk = pick(0, 10),
                     .row_context = pick(0, 9),
                     .max_partial = pick(0, 2),
                     .max_long_partial = pick(0, 2),
                     .max_overtakes = pick(0, 3),
                     .reserve = static_cast<double>(pick(0, 4))};
  if (rng() % 2) s.limits.policy.cost = random_cost(rng);
  if (rng() % 2) s.limits.policy.step_seconds = 1e-3 * pick(1, 30);
  s.depth = static_cast<size_t>(pick(1, 2));
  s.share = rng() % 4 != 0;
  s.drafts = rng() % 2;
  s.most_drafts = pick(0, 5);
  s.right = pick(0, 4);
  choose_tiers(s, rng);
  if (s.drafts && rng() % 2) {
    s.limits.chained_drafts = pick(1, 4);
    s.limits.chained_reach = s.limits.chained_drafts - pick(0, 1);
  }
  return s;
}

std::vector<CacheExtra> random_extras(std::mt19937_64& rng) {
  std::vector<CacheExtra> extras;
  const auto identity = [&] { return std::string(rng() % 2 ? "one" : "two"); };
  if (rng() % 2) extras.push_back({.identity = identity()});
  const int begin = static_cast<int>(rng() % 12);
  extras.push_back({begin, begin + 1 + static_cast<int>(rng() % 6), identity()});
  return extras;
}

std::vector<NewSequence> random_requests(std::mt19937_64& rng) {
  std::vector<NewSequence> all;
  const size_t n = 3 + rng() % 8;
  const bool priorities = rng() % 2;
  for (SeqId id = 1; id <= n; ++id) {
    NewSequence s;
    s.id = id;
    for (size_t i = 0, shared = rng() % 18; i < shared; ++i)
      s.prompt.push_back(static_cast<Token>(100 + i));
    for (size_t i = 0, own = 1 + rng() % 16; i < own; ++i)
      s.prompt.push_back(static_cast<Token>(200 + rng() % 3));
    if (!all.empty() && rng() % 3 == 0) s.prompt = all[rng() % all.size()].prompt;  // comes back
    s.params.seed = rng() % 2;
    if (rng() % 4 == 0) s.params.logprobs = static_cast<int>(rng() % 3);
    if (rng() % 5 == 0) s.params.prompt_logprobs = static_cast<int>(rng() % 3);
    if (rng() % 4 == 0) s.params.min_tokens = static_cast<int>(rng() % 10);
    s.stop.max_tokens = 1 + static_cast<int>(rng() % 36);
    if (rng() % 2) s.stop.tokens = {5, 17};
    if (rng() % 5 == 0) s.cache.salt = rng() % 2 ? "one" : "two";
    if (rng() % 5 == 0) s.cache.extras = random_extras(rng);
    s.cache.share = rng() % 8 != 0;
    if (rng() % 5 == 0) {
      s.pooling.rows = static_cast<Pooling::Rows>(1 + rng() % 3);
      s.pooling.logits = s.pooling.rows == Pooling::kLast && rng() % 2;
      s.params.prompt_logprobs = kNoLogprobs;
    }
    if (priorities) s.priority = static_cast<int>(rng() % 3) - 1;
    all.push_back(std::move(s));
  }
  return all;
}

// Returns the events that the request would get alone.
Heard oracle(const NewSequence& in, int capacity) {
  Heard out;
  if (in.pooling) {
    out.finish = Finish::kStop;
    out.pooled = fake_pooled(in.prompt);
    return out;
  }
  std::vector<Token> context = in.prompt;
  for (size_t p = 1; p < in.prompt.size() && in.params.prompt_logprobs != kNoLogprobs; ++p) {
    out.prompt_logprobs.push_back(
        fake_logprobs(std::span(context).first(p), in.prompt[p], in.params.prompt_logprobs));
  }
  while (out.finish == Finish::kNone) {
    const Token t = fake_next(context, in.params.seed);
    if (in.params.logprobs != kNoLogprobs)
      out.logprobs.push_back(fake_logprobs(context, t, in.params.logprobs));
    out.tokens.push_back(t);
    context.push_back(t);
    const auto n = static_cast<int>(out.tokens.size());
    const auto& stop = in.stop.tokens;
    if (n > in.params.min_tokens && std::find(stop.begin(), stop.end(), t) != stop.end())
      out.finish = Finish::kStop;
    else if (n == in.stop.max_tokens || static_cast<int>(context.size()) == capacity)
      out.finish = Finish::kLength;
  }
  return out;
}

bool same(const PositionLogprobs& a, const PositionLogprobs& b) {
  const auto equal = [](TokenLogprob x, TokenLogprob y) {
    return x.token == y.token && x.logprob == y.logprob;
  };
  return equal(a.chosen, b.chosen) && a.rank == b.rank &&
         std::equal(a.top.begin(), a.top.end(), b.top.begin(), b.top.end(), equal);
}

template <class T, class Same>
bool prefix_of(const std::vector<T>& a, const std::vector<T>& b, Same equal) {
  return a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin(), equal);
}

void expect_same(const Heard& got, const Heard& want, const NewSequence& in) {
  SCOPED_TRACE(testing::Message() << "sequence " << in.id);
  ASSERT_EQ(got.after_end, 0);
  ASSERT_LE(got.admitted, 1);
  ASSERT_TRUE(prefix_of(got.tokens, want.tokens, std::equal_to<>()));
  ASSERT_TRUE(prefix_of(got.logprobs, want.logprobs, same));
  ASSERT_TRUE(prefix_of(got.prompt_logprobs, want.prompt_logprobs, same));
  ASSERT_EQ(got.logprobs.size(), in.params.logprobs != kNoLogprobs ? got.tokens.size() : 0);
  ASSERT_TRUE(in.params.prompt_logprobs == kNoLogprobs || got.cached == 0);
  ASSERT_TRUE(in.pooling.may_reuse() || got.cached == 0);
  if (got.finish == Finish::kCancelled) return;
  ASSERT_EQ(got.admitted, 1);
  ASSERT_EQ(got.finish, want.finish);
  ASSERT_EQ(got.pooled, want.pooled);
  ASSERT_EQ(got.tokens.size(), want.tokens.size());
  ASSERT_EQ(got.prompt_logprobs.size(), want.prompt_logprobs.size());
}

// Returns the most tokens that `a` may find cached of `b`, whose text is its prompt and `output`.
int shareable(const NewSequence& a, const NewSequence& b, const std::vector<Token>& output,
              int block_size) {
  if (!a.cache.share || !b.cache.share || a.cache.salt != b.cache.salt) return 0;
  std::vector<Token> text = b.prompt;
  text.insert(text.end(), output.begin(), output.end());
  auto most = static_cast<int>(std::ranges::mismatch(a.prompt, text).in1 - a.prompt.begin());
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)})
    for (const CacheExtra& extra : one->cache.extras)
      if (std::ranges::find(other->cache.extras, extra) == other->cache.extras.end())
        most = std::min(most, extra.begin / block_size * block_size);
  return most;
}

void expect_own_prefix(const NewSequence& in, const std::vector<NewSequence>& requests,
                       const Listener& listener, const Setup& setup) {
  int most = 0;
  for (const NewSequence& other : requests)
    if (other.id != in.id || setup.restarted)
      most = std::max(most, shareable(in, other, listener.of(other.id).tokens, setup.block_size));
  ASSERT_LE(listener.of(in.id).cached, most) << "sequence " << in.id;
}

// Answers for the sources: fakes, or a thread with a real file.
struct Answering {
  std::vector<std::unique_ptr<TierIo>> io;
  std::function<void(bool)> between = [](bool) {};
  kv::BlockSources sources;
};
using MakeAnswering = std::function<Answering(FakeRunner&, Queue<Command>&)>;

void check_end(kv::CacheIndex& cache, sched::Scheduler& scheduler, const Setup& setup) {
  kv::BlockTable all;
  ASSERT_EQ(cache.num_free(), setup.num_blocks) << "a block leaked";
  ASSERT_TRUE(cache.grow(all, setup.num_blocks * setup.block_size));
  ASSERT_EQ(std::set(all.blocks.begin(), all.blocks.end()).size(), all.blocks.size());
  ASSERT_EQ(scheduler.stats().running + scheduler.stats().waiting, 0);
  cache.close(all);
  for (int i = 0; i < setup.limits.max_seqs; ++i)
    ASSERT_TRUE(scheduler.add({.id = SeqId{1000} + static_cast<SeqId>(i),
                               .prompt = {1},
                               .params = {},
                               .stop = {.max_tokens = 1, .tokens = {}},
                               .cache = {}}));
  ASSERT_EQ(std::ssize(scheduler.plan().opened), setup.limits.max_seqs) << "a slot leaked";
}

void count(const Heard& got, const NewSequence& in, const Setup& setup, int capacity, Totals& t) {
  t.cancelled += got.finish == Finish::kCancelled;
  t.stopped += got.finish == Finish::kStop;
  t.full += static_cast<int>(in.prompt.size() + got.tokens.size()) == capacity;
  t.cut_reports += in.params.prompt_logprobs != kNoLogprobs &&
                   static_cast<int>(in.prompt.size()) > setup.limits.max_logit_rows;
}

kv::TierStats play(const Setup& setup, const std::vector<NewSequence>& requests, uint64_t seed,
                   const MakeAnswering& make, Totals& totals) {
  std::mt19937_64 rng(~seed);
  FakeRunner runner({setup.num_blocks, setup.block_size, setup.limits, setup.depth, setup.drafts,
                     seed, setup.tiers.host_blocks, setup.copy_cost, setup.most_drafts,
                     setup.right});
  Queue<Command> inbox;
  Answering answering = make(runner, inbox);
  std::vector<TierIo*> io;
  io.reserve(answering.io.size());
  const sched::StepCost cost =
      setup.paced ? sched::StepCost({{1, 4e-4}, {64, 8e-4}}, {}) : sched::StepCost();
  for (const auto& one : answering.io) io.push_back(one.get());
  kv::CacheIndex cache(setup.num_blocks, setup.block_size, setup.share, seed, setup.tiers,
                       std::move(answering.sources));
  sched::Scheduler scheduler(setup.limits, cache);
  Listener listener;
  Engine engine(
      scheduler, runner, inbox, [&](auto e) { listener.hear(e); }, setup.depth, io, StepPacer(cost),
      DraftPace(/*weighs=*/seed % 2 == 0));
  run_commands(engine, inbox, shuffled_commands(requests, 0.15, rng), rng, answering.between);

  const int capacity = std::min(setup.limits.max_context, setup.num_blocks * setup.block_size + 1);
  for (const NewSequence& in : requests) {
    const Heard& got = listener.of(in.id);
    expect_same(got, oracle(in, capacity), in);
    expect_own_prefix(in, requests, listener, setup);
    if (testing::Test::HasFatalFailure()) return {};
    count(got, in, setup, capacity, totals);
  }
  const sched::SchedulerStats stats = scheduler.stats();
  check_end(cache, scheduler, setup);
  ++totals.cases;
  totals.steps += runner.counts().steps;
  totals.preemptions += static_cast<long>(stats.preemptions);
  totals.evictions += static_cast<long>(cache.evictions());
  totals.cached += static_cast<long>(stats.cached_tokens);
  totals.reopened += runner.counts().reopened;
  totals.drafted += runner.counts().drafted;
  totals.kept += runner.counts().kept;
  return stats.tiers;
}

void run_case(uint64_t seed, Totals& totals) {
  std::mt19937_64 rng(seed);
  Setup setup = random_setup(rng);
  setup.paced = seed % 64 == 0;
  const std::vector<NewSequence> requests = random_requests(rng);
  const auto make = [&](FakeRunner& runner, Queue<Command>& inbox) -> Answering {
    Answering all;
    std::vector<FakeTierIo*> files;
    for (size_t i = 0; i < setup.records.size(); ++i) {
      auto io =
          std::make_unique<FakeTierIo>(runner, inbox, setup.faults, seed + i, static_cast<int>(i));
      files.push_back(io.get());
      all.io.push_back(std::move(io));
      all.sources.push_back(std::make_unique<kv::RecordSource>(setup.records[i], seed));
    }
    all.between = [&, files](bool must) {
      for (FakeTierIo* file : files) {
        if (setup.stalls && rng() % 16 == 0) rng() % 2 ? file->stall() : file->recover();
        file->answer(must + rng() % 3);
      }
    };
    return all;
  };
  add(totals.tiers, play(setup, requests, seed, make, totals));
}

// Plays a random case with the real thread and a real file, some bytes of which are changed
// meanwhile; then once more, as after a restart.
void run_file_case(uint64_t seed, Totals& totals) {
  std::mt19937_64 rng(seed);
  Setup setup = random_setup(rng);
  setup.share = true;
  setup.tiers = {.host_blocks = 2 + static_cast<int>(rng() % 20), .spill = rng() % 2 == 0};
  const std::vector<NewSequence> requests = random_requests(rng);
  const store::TempDir dir;
  const bool damage = rng() % 2;
  const store::StoreOptions options{
      .dir = dir.path(),
      .max_bytes = 4096 * (2 + rng() % 40),
      .payload = static_cast<size_t>(setup.block_size) * sizeof(Token),
      .block_size = setup.block_size};
  for (int life = 0; life < 2; ++life) {
    auto store = store::BlockStore::open(options);
    ASSERT_NE(store, nullptr);
    setup.restarted = life > 0;
    const auto make = [&](FakeRunner& runner, Queue<Command>& inbox) -> Answering {
      Answering all;
      all.sources.push_back(
          std::make_unique<kv::RecordSource>(store->num_records(), seed, store->found()));
      const auto host = [&](int i) { return std::as_writable_bytes(runner.host_block(i)); };
      all.io.push_back(
          std::make_unique<TierThread>(work_on(std::move(store)), host, inbox, kPatient));
      all.between = [&](bool) {
        if (damage && rng() % 2) dir.damage(rng);
      };
      return all;
    };
    add(totals.on_disk, play(setup, requests, seed, make, totals));
    if (testing::Test::HasFatalFailure()) return;
  }
}

void print(const char* what, const kv::TierStats& t) {
  std::printf(
      "%s: tokens from host memory %zu, from the file %zu; blocks saved %zu, loaded %zu, read %zu, "
      "written %zu, failed %zu, skipped %zu\n",
      what, t.host_tokens, t.file_tokens, t.saves, t.loads, t.reads, t.writes, t.failures,
      t.skipped);
}

TEST(Engine, EveryRequestGetsWhatItWouldGetAlone) {
  Totals t;
  for (uint64_t seed = 0; seed < 10000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    seed % 25 == 0 ? run_file_case(seed, t) : run_case(seed, t);
    if (HasFatalFailure()) return;
  }
  print("tiers", t.tiers);
  print("tiers on disk", t.on_disk);
  std::printf(
      "cases %ld steps %ld preemptions %ld (reopened with output %ld) evictions %ld "
      "cached tokens %ld drafted %ld kept %ld cancelled %ld stopped %ld full %ld "
      "cut reports %ld\n",
      t.cases, t.steps, t.preemptions, t.reopened, t.evictions, t.cached, t.drafted, t.kept,
      t.cancelled, t.stopped, t.full, t.cut_reports);
  // Makes sure that the schedules did what they are meant to test.
  EXPECT_GT(t.preemptions, 1000);
  EXPECT_GT(t.reopened, 1000);
  EXPECT_GT(t.evictions, 1000);
  EXPECT_GT(t.cached, 1000);
  EXPECT_GT(t.kept, 1000);
  EXPECT_GT(t.drafted, t.kept);
  EXPECT_GT(t.cancelled, 1000);
  EXPECT_GT(t.stopped, 1000);
  EXPECT_GT(t.full, 100);
  EXPECT_GT(t.cut_reports, 100);
  EXPECT_GT(t.tiers.host_tokens, 1000u);
  EXPECT_GT(t.tiers.file_tokens, 500u);
  EXPECT_GT(t.tiers.failures, 1000u);
  EXPECT_GT(t.tiers.skipped, 1000u);
  EXPECT_GT(t.tiers.recomputed, 1000u);
  // A real thread serves the file: how much of the damage is met depends on its speed.
  EXPECT_GT(t.on_disk.file_tokens, 100u);
  EXPECT_GT(t.on_disk.failures, 20u);
}

NewSequence request(SeqId id, int prompt, int max_tokens) {
  NewSequence s;
  s.id = id;
  for (int i = 0; i < prompt; ++i) s.prompt.push_back(i % 7);
  s.stop.max_tokens = max_tokens;
  return s;
}

class Rig {
 public:
  explicit Rig(size_t depth, StepPacer pacer = StepPacer())
      : cache_(32, 4, true),
        scheduler_(limits_, cache_),
        runner_({32, 4, limits_, depth, false, 1}),
        engine_(
            scheduler_, runner_, inbox_, [this](auto e) { listener_.hear(e); }, depth, {},
            std::move(pacer)) {}

  const sched::Limits limits_{
      .max_seqs = 4, .max_rows = 32, .max_context = 64, .max_logit_rows = 8};
  kv::CacheIndex cache_;
  sched::Scheduler scheduler_;
  FakeRunner runner_;
  Queue<Command> inbox_;
  Listener listener_;
  Engine engine_;
};

TEST(Engine, OnlyBlocksOfTheSameExtrasAreFound) {
  Rig rig(2);
  SeqId id = 0;
  const auto cached = [&](std::vector<CacheExtra> extras) {
    NewSequence s = request(++id, 17, 2);
    s.cache.extras = std::move(extras);
    rig.inbox_.push(std::move(s));
    do rig.engine_.step();
    while (!rig.engine_.idle());
    EXPECT_EQ(rig.listener_.of(id).finish, Finish::kLength);
    return rig.listener_.of(id).cached;
  };
  const CacheExtra cat{.begin = 4, .end = 10, .identity = "cat"};
  const CacheExtra dog{.begin = 4, .end = 10, .identity = "dog"};
  EXPECT_EQ(cached({cat}), 0);
  EXPECT_EQ(cached({cat}), 16);
  EXPECT_EQ(cached({dog}), 4) << "the block before the image";
  EXPECT_EQ(cached({{.identity = "french"}}), 0);
  EXPECT_EQ(cached({{.identity = "french"}}), 16);
  EXPECT_EQ(cached({}), 4);
}

TEST(Engine, ACancelFreesASequenceInFlightWithinOneStep) {
  Rig rig(2);
  rig.inbox_.push(request(1, 8, 50));
  for (int i = 0; i < 5; ++i) rig.engine_.step();
  EXPECT_LT(rig.cache_.num_free(), 32);
  rig.inbox_.push(Cancel{1});
  rig.engine_.step();
  EXPECT_EQ(rig.listener_.of(1).finish, Finish::kCancelled);
  EXPECT_EQ(rig.cache_.num_free(), 32);
  EXPECT_TRUE(rig.engine_.idle());
  rig.inbox_.push(Cancel{1});  // again, and of nobody
  rig.inbox_.push(Cancel{77});
  rig.engine_.step();
  EXPECT_FALSE(rig.listener_.knows(77));
}

// Hands steps on to a runner and notes what is in flight.
class WatchedRunner final : public Runner {
 public:
  explicit WatchedRunner(Runner& runner) : runner_(runner) {}
  void launch(const StepPlan& plan) override {
    ahead += !flying_.empty();
    behind_drafts += !flying_.empty() && flying_.back();
    drafted += plan.drafts;
    flying_.push_back(plan.drafts);
    runner_.launch(plan);
  }
  StepResult wait(uint64_t step) override {
    flying_.pop_front();
    return runner_.wait(step);
  }
  int ahead = 0, behind_drafts = 0, drafted = 0;

 private:
  Runner& runner_;
  std::deque<bool> flying_;
};

// A trial of steps without drafts comes early, so there are steps of both kinds.
TEST(Engine, AStepBehindWhichAModelDraftsIsWaitedFor) {
  const sched::Limits limits{
      .max_seqs = 1, .max_rows = 32, .max_context = 512, .max_logit_rows = 8};
  kv::CacheIndex cache(160, 4, true);
  sched::Scheduler scheduler(limits, cache);
  FakeRunner fake({160, 4, limits, 2, false, 1});
  WatchedRunner runner(fake);
  Queue<Command> inbox;
  Listener listener;
  Engine engine(
      scheduler, runner, inbox, [&](auto e) { listener.hear(e); }, /*depth=*/2, {}, StepPacer(),
      DraftPace(/*weighs=*/true));
  inbox.push(request(1, 8, 300));
  do engine.step();
  while (!engine.idle());
  EXPECT_EQ(listener.of(1).tokens.size(), 300u);
  EXPECT_EQ(runner.behind_drafts, 0);
  EXPECT_GT(runner.ahead, 0);
  EXPECT_GT(runner.drafted, 0);
}

// One step has the prompt; in the others the sequence decodes, with drafts or without.
TEST(Engine, TheTimeOfStepsWithDraftsIsCountedApart) {
  const sched::Limits limits{
      .max_seqs = 1, .max_rows = 32, .max_context = 512, .max_logit_rows = 8};
  kv::CacheIndex cache(160, 4, true);
  sched::Scheduler scheduler(limits, cache);
  FakeRunner runner({160, 4, limits, 1, true, 1});
  Queue<Command> inbox;
  Listener listener;
  Engine engine(
      scheduler, runner, inbox, [&](auto e) { listener.hear(e); }, /*depth=*/1);
  inbox.push(request(1, 8, 300));
  do engine.step();
  while (!engine.idle());
  const StepTally& tally = engine.tally();
  EXPECT_EQ(tally.others.steps, 1u);
  EXPECT_EQ(tally.checks.steps, scheduler.stats().drafts.checks);
  EXPECT_GT(tally.checks.steps, 10u);
  EXPECT_GT(tally.decodes.steps, 10u);
  EXPECT_EQ(1 + tally.checks.steps + tally.decodes.steps, engine.steps());
}

// Steps are expected to take a second at most, so that planning the second one waits for some
// tenths.
StepPacer slow_steps() { return StepPacer(sched::StepCost({{1, 1.0}, {64, 1.0}}, {})); }

TEST(Engine, ARequestThatComesWhileAStepComputesIsInTheNextOne) {
  Rig rig(2, slow_steps());
  rig.inbox_.push(request(1, 8, 50));
  rig.engine_.step();
  std::thread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    rig.inbox_.push(request(2, 8, 50));
  });
  rig.engine_.step();
  sender.join();
  EXPECT_EQ(rig.scheduler_.stats().running, 2);
  EXPECT_GT(rig.engine_.tally().others.wait, 0.1) << "waiting for arrivals is waiting for the step";
}

TEST(Engine, AClosedInboxIsNotWaitedFor) {
  Rig rig(2, slow_steps());
  rig.inbox_.push(request(1, 8, 50));
  rig.engine_.step();
  rig.inbox_.close();
  const auto start = std::chrono::steady_clock::now();
  rig.engine_.step();
  EXPECT_LT(seconds_since(start), 0.2);
}

TEST(Engine, ARequestThatCannotRunIsToldWhy) {
  Rig rig(1);
  rig.inbox_.push(request(1, 64, 1));
  rig.engine_.step();
  EXPECT_EQ(rig.listener_.of(1).finish, Finish::kExhausted);
  EXPECT_NE(rig.listener_.of(1).why.find("64"), std::string::npos);
  EXPECT_TRUE(rig.engine_.idle());
}

TEST(Engine, RunEndsWhenClosedAndDrained) {
  Rig rig(2);
  const std::atomic<bool> abort = false;
  rig.inbox_.push(request(1, 8, 20));
  std::thread closer([&] {
    rig.inbox_.push(request(2, 9, 20));
    rig.inbox_.close();
  });
  rig.engine_.run(abort);
  closer.join();
  EXPECT_EQ(rig.listener_.of(1).tokens.size(), 20u);
  EXPECT_EQ(rig.listener_.of(2).tokens.size(), 20u);
}

TEST(Engine, RunCancelsAllWhenAborted) {
  Rig rig(2);
  const std::atomic<bool> abort = true;
  rig.inbox_.push(request(1, 8, 20));
  rig.inbox_.close();
  rig.engine_.run(abort);
  EXPECT_EQ(rig.listener_.of(1).finish, Finish::kCancelled);
  EXPECT_EQ(rig.cache_.num_free(), 32);
}

}  // namespace
}  // namespace skiff::engine

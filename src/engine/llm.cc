#include "engine/llm.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include "base/load_error.h"
#include "base/log.h"
#include "base/random.h"
#include "comm/devices/group.h"
#include "engine/backend.h"
#include "engine/drafting_runner.h"
#include "engine/engine.h"
#include "engine/engine_memory.h"
#include "engine/lockstep.h"
#include "engine/lower_tiers.h"
#include "engine/peer_tiers.h"
#include "engine/rank_group.h"
#include "engine/replicas.h"
#include "engine/resolve.h"
#include "engine/side_by_side.h"
#include "engine/stats_board.h"
#include "engine/step_costs.h"
#include "engine/tier_thread.h"
#include "kv/record_source.h"
#include "model/kv_cache.h"
#include "store/block_store.h"
#include "tensor/device_memory.h"

namespace skiff::engine {
namespace {

Event refusal(SeqId id) {
  return {.seq = id, .finish = Finish::kExhausted, .why = "the engine has stopped"};
}

// log.memory says how much memory is needed, as far as that is known.
[[noreturn]] void fail_memory(const Resolved& resolved, const OutOfDeviceMemory& error,
                              const StartLog& log) {
  fail_load(
      "{}. Stop whoever else uses the device (nvidia-smi names them), choose another with "
      "--device, "
      "or lower --gpu-memory-utilization ({}), which leaves the rest to CUDA itself and to others, "
      "--max-num-seqs, --max-model-len or --max-num-batched-tokens\n{}",
      error.what(), resolved.memory_utilization, log.memory);
}

using Failed = std::function<void(const std::string& why)>;  // see EngineConfig

class LocalLlm;

// Which of several replicas an engine is. Those that share experts are in lockstep; of others on
// the host all compute with the weights of the first, which is their twin.
struct Replica {
  std::string name = {};  // how it begins when it says why it has failed; empty: there is but one
  const LocalLlm* twin = nullptr;
  std::shared_ptr<Lockstep> lockstep = {};  // shared, because it lives as long as the last of them
};

class LocalLlm final : public Llm {
 public:
  LocalLlm(model::ModelConfig model, Resolved resolved, Sink sink, Failed failed, StartLog& log,
           Replica replica);
  ~LocalLlm() override { stop(/*drain=*/false); }

  const model::ModelConfig& model() const override { return model_; }
  const Resolved& resolved() const override { return resolved_; }
  const model::MemoryPlan& memory() const override { return ranks_.first().memory(); }
  bool batch_invariant() const override { return ranks_.first().ops().batch_invariant(); }
  void submit(NewSequence sequence) override;
  void cancel(SeqId id) override { inbox_.push(Cancel{id}); }
  EngineStats stats() const override {
    EngineStats stats = board_.read();
    stats.peers = peers_.stats();
    return stats;
  }
  std::vector<EngineMemory*> memories() override { return {&held_}; }
  void begin_drain() override { peers_.begin_drain(); }
  void stop(bool drain) override;

 private:
  void deliver(std::vector<Event> events);
  void serve_or_fail();
  [[noreturn]] void fail(const std::string& why) const { end_process(replica_.name + why); }
  [[noreturn]] void end_process(const std::string& why) const;
  void serve();
  void publish_stats();
  std::unique_ptr<TierThread> start_tiers();
  std::vector<TierIo*> movers() const;
  std::unique_ptr<Runner> start_runner();
  sched::Limits prepare(StartLog& log);
  StepPacer make_pacer() const;

  const model::ModelConfig model_;
  const Resolved resolved_;
  const Sink sink_;
  const Failed failed_;
  const Replica replica_;
  RankGroup ranks_;
  Queue<Command> inbox_;
  LowerTiers lower_;
  PeerTiers peers_;
  kv::CacheIndex cache_;
  sched::Scheduler scheduler_;
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<TierThread> tiers_;  // null if the cache has no file
  Engine engine_;
  EngineMemory held_;
  StatsBoard board_;
  std::atomic<bool> abort_ = false;
  std::mutex door_;     // held briefly by submit() and at the end of serve()
  bool ended_ = false;  // guarded by door_: the inbox is read no more
  std::mutex joining_;
  std::thread thread_;  // guarded by joining_
};

LocalLlm::LocalLlm(model::ModelConfig model, Resolved resolved, Sink sink, Failed failed,
                   StartLog& log, Replica replica)
    : model_(std::move(model)),
      resolved_(std::move(resolved)),
      sink_(std::move(sink)),
      failed_(std::move(failed)),
      replica_(std::move(replica)),
      ranks_(resolved_, model_, log,
             {.twin = replica_.twin ? &replica_.twin->ranks_ : nullptr,
              .lockstep = replica_.lockstep.get()},
             [this](const std::string& why) { fail(why); }),
      lower_(open_lower_tiers(resolved_, model_.spec, ranks_.first().ops(), log)),
      peers_(resolved_, lower_, inbox_, log.quiet),
      cache_(memory().blocks, resolved_.cache.block_size, resolved_.cache.prefix_caching,
             random_seed(), lower_.config, std::move(lower_.sources)),
      scheduler_(prepare(log), cache_),
      runner_(start_runner()),
      tiers_(start_tiers()),
      engine_(
          scheduler_, *runner_, inbox_, [this](auto events) { deliver(std::move(events)); },
          static_cast<size_t>(resolved_.steps_in_flight), movers(), make_pacer(),
          DraftPace(resolved_.drafter.has_value())),
      held_({.ranks = ranks_,
             .runner = *runner_,
             .cache = cache_,
             .lower = lower_,
             .engine = engine_,
             .inbox = inbox_,
             .resolved = resolved_,
             .model = model_,
             .fail = [this](const std::string& why) { fail(why); },
             .rests = [this](bool rests) { board_.rest(rests); }}) {
  peers_.listen([this](NewSequence sequence) { submit(std::move(sequence)); });
  publish_stats();
  log.ledger.close("engine");
  if (!log.quiet) spdlog::info("start-up took {}", log.ledger.text());
  thread_ = std::thread([this] { serve_or_fail(); });
}

// Makes the executors, warms them up and measures what its steps cost. Returns the limits that the
// scheduler works with.
sched::Limits LocalLlm::prepare(StartLog& log) {
  ranks_.make_executors(lower_.host);
  log.ledger.close("executor");
  ranks_.warm_up();
  log.ledger.close("warm-up");
  sched::Limits limits = resolved_.limits;
  ranks_.first().executor().tell_chaining(limits);
  if (!log.quiet) spdlog::info("at most {} sequences run at a time", limits.max_seqs);
  if (!resolved_.measures_steps) return limits;
  const std::unique_ptr<Runner> runner = ranks_.make_runner();
  StepTimer timer(*runner, limits,
                  {.block_size = resolved_.cache.block_size, .blocks = memory().blocks},
                  kCostContext);
  limits.policy.cost = measure_step_cost(timer, resolved_, model_.spec);
  log.ledger.close("steps");
  if (limits.policy.cost.known() && !log.quiet)
    spdlog::info("{}", describe(limits.policy.cost, limits.policy));
  return limits;
}

// On the CPU each step is planned at once: its time varies too much with what else runs there.
StepPacer LocalLlm::make_pacer() const {
  if (resolved_.device.memory() == Device{}) return StepPacer();
  return StepPacer(scheduler_.limits().policy.cost);
}

std::unique_ptr<Runner> LocalLlm::start_runner() {
  auto runner = ranks_.make_runner();
  if (!resolved_.speculation) return runner;
  draft::Settings settings = *resolved_.speculation;
  if (resolved_.drafter && !settings.then_ngram()) return runner;
  if (resolved_.drafter) settings.method = "ngram";
  // The sampler knows by the place of a sampled draft what it was drawn from.
  const int least = samples_drafts(resolved_) ? settings.model_tokens() : 0;
  return std::make_unique<DraftingRunner>(std::move(runner), settings, least);
}

std::unique_ptr<TierThread> LocalLlm::start_tiers() {
  if (!lower_.store) return nullptr;
  const auto work = [store = std::shared_ptr<store::BlockStore>(std::move(lower_.store))](
                        const kv::TierJob& job, std::span<std::byte> block) {
    return store->carry_out(job, block);
  };
  return std::make_unique<TierThread>(
      work, [this](int host_block) { return lower_.host.block(host_block); }, inbox_,
      TierThread::Patience{.answer = resolved_.cache.storage_wait});
}

// In the order of the cache's sources.
std::vector<TierIo*> LocalLlm::movers() const {
  std::vector<TierIo*> movers;
  for (TierIo* mover : {static_cast<TierIo*>(tiers_.get()), peers_.io()})
    if (mover != nullptr) movers.push_back(mover);
  return movers;
}

void LocalLlm::submit(NewSequence sequence) {
  const SeqId id = sequence.id;
  {
    std::lock_guard lock(door_);
    if (!ended_) {
      board_.begin_work();
      inbox_.push(std::move(sequence));
      return;
    }
  }
  sink_({refusal(id)});
}

// Called on the engine's thread, before and after each step is waited for. It publishes the numbers
// before the events, so that a client that sees its end also sees it counted.
void LocalLlm::deliver(std::vector<Event> events) {
  publish_stats();
  for (const Event& event : events)
    if (event.finish != Finish::kNone) board_.end_work();
  peers_.take_own(events);
  if (!events.empty()) sink_(std::move(events));
}

void LocalLlm::publish_stats() {
  const sched::SchedulerStats s = scheduler_.stats();
  board_.write({.running = s.running,
                .waiting = s.waiting,
                .blocks_total = cache_.num_blocks(),
                .blocks_free = cache_.num_free(),
                .blocks_unused = cache_.num_unused(),
                .steps = engine_.steps(),
                .prompt_tokens = s.prompt_tokens,
                .cached_tokens = s.cached_tokens,
                .generation_tokens = s.generation_tokens,
                .preemptions = s.preemptions,
                .drafts = s.drafts,
                .tally = engine_.tally(),
                .tiers = s.tiers});
}

// Once steps run, what is thrown means that the device, memory, or another rank, node or replica is
// lost. The reason of a group that has ended says which one failed.
void LocalLlm::serve_or_fail() {
  try {
    return serve();
  } catch (const comm::GroupEnded& ended) {
    end_process(ended.what());
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

void LocalLlm::end_process(const std::string& why) const {
  if (failed_) failed_(why);
  spdlog::critical("the engine has failed: {}", why);
  spdlog::shutdown();
  std::_Exit(1);
}

void LocalLlm::serve() {
  pthread_setname_np(pthread_self(), "engine");
  engine_.run(abort_);
  std::vector<Command> late;
  {
    std::lock_guard lock(door_);
    ended_ = true;
    late = inbox_.drain(/*wait=*/false);
  }
  for (const Command& command : late) {
    const auto* sequence = std::get_if<NewSequence>(&command);
    if (sequence != nullptr) deliver({refusal(sequence->id)});
  }
}

void LocalLlm::stop(bool drain) {
  if (!drain) abort_ = true;
  inbox_.close();
  std::lock_guard lock(joining_);
  peers_.close();  // who goes on asking for prompts would keep the engine from its end
  if (thread_.joinable()) thread_.join();
  peers_.stop();
  ranks_.dismiss();
  tiers_.reset();  // finishes pending writes to the file, or abandons them
}

std::unique_ptr<LocalLlm> start_one(const model::ModelConfig& model, const Resolved& resolved,
                                    Llm::Sink sink, Failed failed, StartLog& log,
                                    Replica replica = {}) {
  try {
    return std::make_unique<LocalLlm>(model, resolved, std::move(sink), std::move(failed), log,
                                      std::move(replica));
  } catch (const OutOfDeviceMemory& error) {
    fail_memory(resolved, error, log);
  }
}

void report_replica(const Resolved& settings, int index, int blocks) {
  const std::string threads = settings.device.kind == ComputeDevice::kCpu
                                  ? fmt::format(", {} threads", settings.threads)
                                  : "";
  spdlog::info("replica {} of {} runs on {}: {} blocks{}{}", index, settings.replicas,
               name(settings.device), blocks, threads,
               settings.sharers > 1 ? ", its share of the experts" : "");
}

// Only the first replica reports to the user.
struct ReplicaStart {
  const EngineConfig& config;
  const model::ModelConfig& model;
  const Resolved& resolved;
  const Llm::Sink& sink;

  std::unique_ptr<LocalLlm> operator()(int index, Replica replica) const {
    StartLog log{.quiet = config.quiet || index > 0,
                 .progress = index == 0 ? config.progress : nullptr};
    const Resolved settings = replica_of(resolved, index);
    replica.name = fmt::format("replica {}: ", index);
    auto llm = start_one(model, settings, sink, config.failed, log, std::move(replica));
    if (!config.quiet) report_replica(settings, index, llm->memory().blocks);
    return llm;
  }
};

// Starts the replicas one after the other. Where they share memory, all compute with the first
// one's weights.
Replicas::All start_in_turn(const ReplicaStart& start, int count) {
  Replicas::All all;
  const LocalLlm* first = nullptr;
  for (int i = 0; i < count; ++i) {
    auto llm = start(i, {.twin = first});
    if (i == 0) first = llm.get();
    all.push_back(std::move(llm));
  }
  return all;
}

// Ranks of the same number in all replicas exchange rows; those of a replica are a group of their
// own (RankGroup).
std::vector<Lockstep::Exchanges> exchanges_on_devices(const Resolved& resolved) {
  std::vector<Lockstep::Exchanges> by_rank;
  for (int rank = 0; rank < resolved.ranks; ++rank) {
    std::vector<int> devices;
    devices.reserve(static_cast<size_t>(resolved.replicas));
    for (int replica = 0; replica < resolved.replicas; ++replica)
      devices.push_back(replica_of(resolved, replica).device.index + rank);
    by_rank.push_back(devices::DeviceGroup(devices).make_exchanges());
  }
  return by_rank;
}

// What is exchanged through takes memory before any replica plans its own.
std::shared_ptr<Lockstep> make_lockstep(const Resolved& resolved) {
  if (resolved.device.kind != ComputeDevice::kCuda)
    return std::make_shared<Lockstep>(resolved.replicas, resolved.ranks);
  return std::make_shared<Lockstep>(exchanges_on_devices(resolved));
}

// Starts the replicas at the same time, because each needs the experts of the others for its first
// steps, which are timed while it starts.
Replicas::All start_in_lockstep(const ReplicaStart& start) {
  const std::shared_ptr<Lockstep> lockstep = make_lockstep(start.resolved);
  Replicas::All all(static_cast<size_t>(start.resolved.replicas));
  side_by_side(
      all.size(), [&](size_t i) { all[i] = start(static_cast<int>(i), {.lockstep = lockstep}); },
      [&](size_t i, const std::string& why) {
        lockstep->end(fmt::format("replica {}: {}", i, why));
      });
  return all;
}

std::unique_ptr<Llm> start_replicas(const EngineConfig& config, const model::ModelConfig& model,
                                    const Resolved& resolved, Llm::Sink sink) {
  const auto start_all = [&](const Llm::Sink& heard) {
    const ReplicaStart start{config, model, resolved, heard};
    return resolved.sharers > 1 ? start_in_lockstep(start)
                                : start_in_turn(start, resolved.replicas);
  };
  return std::make_unique<Replicas>(start_all, std::move(sink));
}

}  // namespace

std::unique_ptr<Llm> Llm::start(const EngineConfig& config, Sink sink) {
  StartLog log{.quiet = config.quiet, .progress = config.progress};
  const model::ModelConfig model = read_model(config);
  const Resolved resolved = resolve(config, model);
  log.ledger.close("config");
  if (resolved.replicas > 1) return start_replicas(config, model, resolved, std::move(sink));
  return start_one(model, resolved, std::move(sink), config.failed, log);
}

}  // namespace skiff::engine

#include "engine/llm.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/load_error.h"
#include "base/log.h"
#include "base/random.h"
#include "engine/backend.h"
#include "engine/device_runner.h"
#include "engine/engine.h"
#include "engine/fingerprint.h"
#include "engine/ledger.h"
#include "engine/resolve.h"
#include "engine/stats_board.h"
#include "engine/tier_thread.h"
#include "kv/record_source.h"
#include "model/kv_cache.h"
#include "store/block_store.h"
#include "tensor/device_memory.h"

namespace skiff {
namespace {

Progress progress_bar(const EngineConfig& config) {
  if (config.progress) return config.progress;
  return make_progress_bar(config.quiet ? "" : "loading weights");
}

Event refusal(SeqId id) {
  return {.seq = id, .finish = Finish::kExhausted, .why = "the engine has stopped"};
}

// `planned` is the memory plan, or the minimum need if planning had not finished.
[[noreturn]] void fail_memory(const EngineConfig& config, const OutOfDeviceMemory& error,
                              const std::string& planned) {
  fail_load(
      "{}. Stop whoever else uses the device (nvidia-smi names them), choose another with "
      "--device, "
      "or lower --gpu-memory-utilization ({}), which leaves the rest to CUDA itself and to others, "
      "--max-num-seqs, --max-model-len or --max-num-batched-tokens\n{}",
      error.what(), config.memory_utilization, planned);
}

// What start-up makes, in this order.
struct Loaded {
  // Sets `planned` to what is known so far of the memory that is needed, for fail_memory().
  Loaded(const EngineConfig& config, std::string& planned);
  void open_tiers(const EngineConfig& config);

  Ledger ledger;
  ModelConfig model;
  Resolved resolved;
  std::unique_ptr<Ops> ops;
  MemoryPlan memory;
  LoadedModel weights;
  std::optional<KvCache> kv;
  TierConfig tiers;
  BlockSources sources;  // the file, if there is one
  HostBlocks host;
  std::unique_ptr<BlockStore> store;  // null: there is no file
};

Loaded::Loaded(const EngineConfig& config, std::string& planned)
    : model(read_model_config(config.model, config.config_name)), resolved(resolve(config, model)) {
  const ModelSpec& spec = model.spec;
  ledger.close("config");
  planned = minimum_need(resolved, spec);
  ops = make_ops(resolved);
  memory = plan_memory(spec, memory_request(resolved, spec, *ops));
  planned = memory.table();
  if (!config.quiet) {
    spdlog::info("memory plan\n{}", memory.table());
    // As FastDeploy words it: scripts look for this line.
    spdlog::info("Reset block num, the total_block_num:{}", memory.blocks);
  }
  ledger.close("plan");
  weights = load_model(resolved.model.folder, model,
                       {.precision = resolved.precision,
                        .format = resolved.model.format,
                        .dummy_seed = resolved.model.seed,
                        .progress = progress_bar(config)},
                       *ops);
  ledger.close("load");
  kv.emplace(spec, memory.blocks, resolved.cache.block_size, resolved.precision.kv.dtype,
             ops->device());
  ledger.close("kv");
  if (memory.host_slots == 0) return;
  open_tiers(config);
  ledger.close("tiers");
}

void Loaded::open_tiers(const EngineConfig& config) {
  const CacheSettings& cache = resolved.cache;
  const BlockKey fingerprint = fingerprint_of(
      resolved, {.backend = ops->arithmetic(), .build = std::string(sources_digest())});
  tiers = {.spill = cache.spill,
           .fingerprint = std::string(fingerprint.begin(), fingerprint.end())};
  if (!cache.storage_path.empty())
    store = BlockStore::open({.dir = cache.storage_path,
                              .max_bytes = cache.storage_bytes,
                              .payload = memory.kv_block,
                              .block_size = cache.block_size,
                              .fingerprint = fingerprint});
  if (store)
    sources.push_back(
        std::make_unique<RecordSource>(store->num_records(), random_seed(), store->found()));
  if (store && !config.quiet)
    spdlog::info("{}: {} of at most {} blocks of {} tokens are there", cache.storage_path,
                 store->found().size(), store->num_records(), cache.block_size);
  if (!store && !tiers.spill) return;
  tiers.host_blocks = memory.host_slots;
  host = HostBlocks(model.spec, tiers.host_blocks, cache.block_size, resolved.precision.kv.dtype,
                    ops->device());
}

class LocalLlm final : public Llm {
 public:
  LocalLlm(const EngineConfig& config, Sink sink, std::string& planned);
  ~LocalLlm() override { stop(/*drain=*/false); }

  const ModelConfig& model() const override { return loaded_.model; }
  const Resolved& resolved() const override { return loaded_.resolved; }
  const MemoryPlan& memory() const override { return loaded_.memory; }
  bool batch_invariant() const override { return loaded_.ops->batch_invariant(); }
  void submit(NewSequence sequence) override;
  void cancel(SeqId id) override { inbox_.push(Cancel{id}); }
  EngineStats stats() const override { return board_.read(); }
  void stop(bool drain) override;

 private:
  void deliver(std::vector<Event> events);
  void serve_or_fail();
  void serve();
  void publish_stats();
  std::unique_ptr<TierThread> start_tiers();

  Loaded loaded_;
  Sink sink_;
  std::function<void(const std::string& why)> failed_;
  CacheIndex cache_;
  Scheduler scheduler_;
  Mesh mesh_ = make_solo_mesh();
  StepExecutor executor_;
  std::unique_ptr<Runner> runner_;
  Queue<Command> inbox_;
  std::unique_ptr<TierThread> tiers_;  // null: there is no file
  Engine engine_;
  StatsBoard board_;
  std::atomic<bool> abort_ = false;
  std::mutex door_;     // held for a moment by submit() and by the end of serve()
  bool ended_ = false;  // guarded by door_: nobody reads the inbox any more
  std::mutex joining_;
  std::thread thread_;  // guarded by joining_
};

LocalLlm::LocalLlm(const EngineConfig& config, Sink sink, std::string& planned)
    : loaded_(config, planned),
      sink_(std::move(sink)),
      failed_(config.failed),
      cache_(loaded_.memory.blocks, loaded_.resolved.cache.block_size,
             loaded_.resolved.cache.prefix_caching, random_seed(), loaded_.tiers,
             std::move(loaded_.sources)),
      scheduler_(loaded_.resolved.limits, cache_),
      executor_(loaded_.weights, *loaded_.ops, mesh_, loaded_.kv->layers(),
                {.act = loaded_.resolved.precision.act,
                 .limits = loaded_.resolved.limits,
                 .host = &loaded_.host,
                 .captures = {.sizes = loaded_.resolved.captures}}),
      runner_(make_runner(executor_, loaded_.ops->device())),
      tiers_(start_tiers()),
      engine_(scheduler_, *runner_, inbox_, [this](auto events) { deliver(std::move(events)); },
              static_cast<size_t>(loaded_.resolved.steps_in_flight), {tiers_.get()}) {
  publish_stats();
  loaded_.ledger.close("engine");
  executor_.warm_up(loaded_.memory.blocks);
  loaded_.ledger.close("warm-up");
  if (!config.quiet) spdlog::info("start-up took {}", loaded_.ledger.text());
  thread_ = std::thread([this] { serve_or_fail(); });
}

std::unique_ptr<TierThread> LocalLlm::start_tiers() {
  if (!loaded_.store) return nullptr;
  const auto work = [store = std::shared_ptr<BlockStore>(std::move(loaded_.store))](
                        const TierJob& job, std::span<std::byte> block) {
    return store->carry_out(job, block);
  };
  return std::make_unique<TierThread>(
      work, [this](int host_block) { return loaded_.host.block(host_block); }, inbox_,
      TierThread::Patience{.answer = loaded_.resolved.cache.storage_wait});
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
  if (!events.empty()) sink_(std::move(events));
}

void LocalLlm::publish_stats() {
  const SchedulerStats s = scheduler_.stats();
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
                .tally = engine_.tally(),
                .tiers = s.tiers});
}

// Nothing of ours throws once steps run; a driver that has lost its device does.
void LocalLlm::serve_or_fail() {
  try {
    return serve();
  } catch (const std::exception& error) {
    if (failed_) failed_(error.what());
    spdlog::critical("the engine has failed: {}", error.what());
  }
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
  if (thread_.joinable()) thread_.join();
  tiers_.reset();  // what is still to be written to the file is, or is given up
}

}  // namespace

std::unique_ptr<Llm> Llm::start(const EngineConfig& config, Sink sink) {
  std::string planned;
  try {
    return std::make_unique<LocalLlm>(config, std::move(sink), planned);
  } catch (const OutOfDeviceMemory& error) {
    fail_memory(config, error, planned);
  }
}

}  // namespace skiff

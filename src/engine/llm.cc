#include "engine/llm.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/load_error.h"
#include "base/log.h"
#include "base/random.h"
#include "engine/device_runner.h"
#include "engine/engine.h"
#include "engine/fingerprint.h"
#include "engine/ledger.h"
#include "engine/resolve.h"
#include "engine/stats_board.h"
#include "engine/tier_thread.h"
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

// What one sequence takes at least: known before the device is asked.
std::string least_need(const EngineConfig& config, const ModelSpec& spec) {
  const Limits limits = limits_of(config, spec);
  const auto plain = make_reference_ops();  // keeps weights as they are
  const MemoryPlan plan = plan_memory(spec, {.ops = *plain,
                                             .compute = config.dtype,
                                             .block_size = config.block_size,
                                             .max_rows = limits.max_rows,
                                             .max_logit_rows = limits.max_logit_rows,
                                             .max_seqs = 1,
                                             .max_model_len = limits.max_context,
                                             .available = std::numeric_limits<size_t>::max()});
  return fmt::format("the model needs {:.3f} GiB for one sequence of --max-model-len {}",
                     static_cast<double>(plan.total()) / static_cast<double>(size_t{1} << 30),
                     limits.max_context);
}

// `planned` is the memory plan, or the least need where planning had not finished.
[[noreturn]] void fail_memory(const EngineConfig& config, const OutOfDeviceMemory& error,
                              const std::string& planned) {
  fail_load(
      "{}. Stop whoever else uses the device (nvidia-smi names them), choose another with "
      "--device, "
      "or lower --gpu-memory-utilization ({}), which leaves the rest to CUDA itself and to others, "
      "--max-num-seqs, --max-model-len or --max-num-batched-tokens\n{}",
      error.what(), config.memory_utilization, planned);
}

// What comes of loading, in the order of loading.
struct Loaded {
  // `planned` is set to what is known so far of the memory that it takes, for fail_memory().
  Loaded(EngineConfig wanted, std::string& planned);
  void open_tiers();

  Ledger ledger;
  ModelConfig model;
  EngineConfig config;
  std::unique_ptr<Ops> ops;
  MemoryPlan memory;
  LoadedModel weights;
  std::optional<KvCache> kv;
  TierConfig tiers;
  HostBlocks host;
  std::unique_ptr<BlockStore> store;  // null: there is no file
};

Loaded::Loaded(EngineConfig wanted, std::string& planned) {
  model = read_model_config(wanted.model, wanted.config_name);
  config = resolved(std::move(wanted), model.spec);
  ledger.close("config");
  planned = least_need(config, model.spec);
  ops = make_ops(config, model.spec);
  memory = plan_memory(model.spec, memory_request(config, model.spec, *ops));
  config.num_blocks_override = memory.blocks;
  planned = memory.table();
  if (!config.quiet) {
    spdlog::info("memory plan\n{}", memory.table());
    // As FastDeploy words it: scripts look for this line.
    spdlog::info("Reset block num, the total_block_num:{}", memory.blocks);
  }
  ledger.close("plan");
  weights = load_model(config.model, model,
                       {.precision = uniform_precision(config.dtype),
                        .format = config.load_format,
                        .dummy_seed = config.seed,
                        .progress = progress_bar(config)},
                       *ops);
  ledger.close("load");
  kv.emplace(model.spec, memory.blocks, config.block_size, config.dtype, ops->device());
  ledger.close("kv");
  if (memory.host_slots == 0) return;
  open_tiers();
  ledger.close("tiers");
}

void Loaded::open_tiers() {
  const BlockKey fingerprint = fingerprint_of(
      config, {.backend = ops->arithmetic(), .build = std::string(sources_digest())});
  tiers = {.spill = config.swap_space_gb > 0,
           .fingerprint = std::string(fingerprint.begin(), fingerprint.end())};
  if (!config.storage_path.empty())
    store = BlockStore::open({.dir = config.storage_path,
                              .max_bytes = static_cast<uint64_t>(config.storage_gb * kBytesPerGb),
                              .payload = memory.kv_block,
                              .block_size = config.block_size,
                              .fingerprint = fingerprint});
  if (store) tiers.file_records = store->num_records();
  if (store && !config.quiet)
    spdlog::info("{}: {} of at most {} blocks of {} tokens are there", config.storage_path,
                 store->found().size(), store->num_records(), config.block_size);
  if (!store && !tiers.spill) return;
  tiers.host_slots = memory.host_slots;
  host = HostBlocks(model.spec, tiers.host_slots, config.block_size, config.dtype, ops->device());
}

class LocalLlm final : public Llm {
 public:
  LocalLlm(const EngineConfig& config, Sink sink, std::string& planned);
  ~LocalLlm() override { stop(/*drain=*/false); }

  const ModelConfig& model() const override { return loaded_.model; }
  const EngineConfig& config() const override { return loaded_.config; }
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
  Limits limits_;
  CacheIndex cache_;
  Scheduler scheduler_;
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
      limits_(limits_of(loaded_.config, loaded_.model.spec)),
      cache_(loaded_.memory.blocks, loaded_.config.block_size, loaded_.config.prefix_caching,
             random_seed(), loaded_.tiers,
             loaded_.store ? loaded_.store->found() : std::vector<StoredBlock>{}),
      scheduler_(limits_, cache_),
      executor_(loaded_.weights, *loaded_.ops, loaded_.kv->layers(), loaded_.config.dtype, limits_,
                &loaded_.host, capture_sizes(loaded_.config, loaded_.ops->device())),
      runner_(make_runner(executor_, loaded_.ops->device())),
      tiers_(start_tiers()),
      engine_(
          scheduler_, *runner_, inbox_, [this](auto events) { deliver(std::move(events)); },
          static_cast<size_t>(loaded_.config.steps_in_flight), tiers_.get()) {
  publish_stats();
  loaded_.ledger.close("engine");
  executor_.warm_up(loaded_.memory.blocks);
  loaded_.ledger.close("warm-up");
  if (!loaded_.config.quiet) spdlog::info("start-up took {}", loaded_.ledger.text());
  thread_ = std::thread([this] { serve_or_fail(); });
}

std::unique_ptr<TierThread> LocalLlm::start_tiers() {
  if (!loaded_.store) return nullptr;
  const auto work = [store = std::shared_ptr<BlockStore>(std::move(loaded_.store))](
                        const TierJob& job, std::span<std::byte> block) {
    return store->carry_out(job, block);
  };
  return std::make_unique<TierThread>(
      work, [this](int slot) { return loaded_.host.slot(slot); }, inbox_,
      TierThread::Patience{.answer = loaded_.config.storage_wait});
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
    if (loaded_.config.failed) loaded_.config.failed(error.what());
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

// engine/sharing_testing.h -- for tests: replicas that share the experts of a model, perhaps with
// what drafts for it, and schedules that run on all of them at the same time.
#pragma once
#include <thread>

#include "engine/drafter_source.h"
#include "engine/schedules_testing.h"
#include "model/eagle.h"
#include "model/mtp.h"

namespace skiff::engine {

// The replicas of a model, with what they share.
struct Sharing {
  Sharing() = default;
  // On the CPU, each replica cut among so many ranks.
  Sharing(const std::string& folder, model::LoadFormat format, DType act, int replicas,
          int ranks = 1) {
    add_models(folder, format, act, {.size = ranks, .sharers = replicas},
               [](int replica, int rank) { return make_cpu_ops(1 + (replica + rank) % 2); });
    lockstep.emplace(replicas, ranks);
  }

  // Loads what each rank of each replica has; `all` says how many there are.
  template <class MakeOps>
  void add_models(const std::string& folder, model::LoadFormat format, DType act,
                  const model::RankOf& all, MakeOps ops_of, std::string_view quantization = {}) {
    for (int replica = 0; replica < all.sharers; ++replica)
      for (int rank = 0; rank < all.size; ++rank) {
        model::RankOf part = all;
        part.rank = rank;
        part.sharer = replica;
        auto one = std::make_unique<Model>(folder, format, act, ops_of(replica, rank), std::nullopt,
                                           part, Moe::kWhole, quantization);
        (rank == 0 ? models : models.back()->others).push_back(std::move(one));
      }
  }
  // From now on no host of a device waits for another in a collective.
  void begin_service() {
    for (devices::DeviceGroup& group : on_devices) group.begin_service();
    for (const auto& model : models)
      if (model->group) model->group->begin_service();
  }

  // Gives each replica what `settings` name, as find_drafter() finds it: all of it, or a part for
  // each of its ranks.
  void add_drafters(const draft::Settings& settings, const std::string& folder,
                    model::LoadFormat format, uint64_t seed = 9) {
    const Precision precision = uniform_precision(models[0]->act);
    model::ModelConfig served = Model::config_of(folder, Moe::kWhole);
    if (settings.method == "eagle3")
      served.spec.taps = model::eagle_taps(settings.model, served.spec);
    const auto ranks = static_cast<int>(models[0]->ranks());
    DrafterSource source = *find_drafter(settings, folder, served, precision, ranks);
    drafter_whole = source.part.size < ranks;
    for (const auto& one : models)
      for (int rank = 0; rank < ranks; ++rank) {
        take_part(source, rank);
        Model& part = one->rank(static_cast<size_t>(rank));
        part.weights.spec.taps = served.spec.taps;
        drafters.push_back(model::load_model(
            source.folder, source.config,
            {.precision = precision, .format = format, .dummy_seed = seed, .part = source.part},
            *part.ops));
        if (drafters.back().spec.joins)
          model::share_weights(drafters.back().spec, drafters.back().weights, part.weights.weights);
      }
  }
  void draft(size_t replica, Setup& setup) const {
    if (drafters.empty()) return;
    const size_t ranks = models[replica]->ranks(), first = replica * ranks;
    setup.drafter = &drafters[first];
    for (size_t rank = 1; rank < ranks; ++rank)
      setup.other_drafters.push_back(&drafters[first + rank]);
    setup.drafter_whole = drafter_whole;
  }

  // Runs each replica's commands, all at the same time. Returns what is heard of all in `heard`.
  // Replicas have drafters where there are some, unless `plain`.
  void run_all(const Setup& setup, const std::vector<std::vector<Command>>& commands,
               const Texts* guesses, std::mt19937_64& rng, const store::TempDir& dir,
               std::vector<Listener>& heard, Totals& totals, bool plain = false) {
    std::barrier<> meeting(std::ssize(models));
    std::vector<Totals> of_each(models.size());
    std::vector<std::thread> threads;
    threads.reserve(models.size());
    for (size_t i = 0; i < models.size(); ++i)
      threads.emplace_back([&, i, seed = rng()] {
        std::mt19937_64 own(seed);
        Setup mine = setup;
        mine.shared = {&*lockstep, static_cast<int>(i), &meeting};
        mine.depth = 1 + own() % 2;
        if (setup.chains.value_or(false)) mine.depth = 2;
        if (!plain) draft(i, mine);
        run(*models[i], mine, commands[i], own, guesses, dir, heard[i], of_each[i]);
      });
    for (std::thread& thread : threads) thread.join();
    for (const Totals& one : of_each) {
      totals.widest = std::max(totals.widest, one.widest);
      totals.preemptions += one.preemptions;
      totals.cached += one.cached;
      totals.kept += one.kept;
      totals.drafted += one.drafted;
      totals.steps += one.steps;
      totals.chained += one.chained;
    }
  }

  // Computes one request after the other, in one replica; `plain`: without drafts.
  Texts texts_of(const Setup& setup, const std::vector<NewSequence>& requests, std::mt19937_64& rng,
                 const store::TempDir& dir, bool plain = true) {
    std::vector<std::vector<Command>> commands(models.size());
    commands.back().assign(requests.begin(), requests.end());
    std::vector<Listener> heard(models.size());
    Totals ignored;
    run_all(setup, commands, nullptr, rng, dir, heard, ignored, plain);
    Texts texts;
    for (const NewSequence& one : requests) texts[one.id] = heard.back().of(one.id);
    return texts;
  }

  std::vector<std::unique_ptr<Model>> models;
  std::deque<model::LoadedModel> drafters;      // none, or those of all ranks of each replica
  bool drafter_whole = false;                   // each rank computes all of it
  std::deque<devices::DeviceGroup> on_devices;  // what exchanges rows, by rank
  std::optional<Lockstep> lockstep;
};

// A group whose other rank has rows, none of which come. It remembers what was expected wherever
// rows meet.
class Expecting final : public comm::RowExchange {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void expect(const std::optional<comm::RowsOfRanks>& rows) override { expected_ = rows; }
  Tensor dispatch(Tensor x, Arena&, Ops&) override {
    sums.push_back(expected_ ? expected_->sum : 0);
    return x;
  }
  Tensor combine(Tensor parts, int64_t, Arena&, Ops&) override { return parts; }

  std::vector<int64_t> sums;

 private:
  std::optional<comm::RowsOfRanks> expected_;
};

// Requests for each replica, some of which are idle, and who has which.
struct Dealt {
  Dealt(const std::vector<NewSequence>& requests, size_t replicas, std::mt19937_64& rng)
      : of_each(replicas) {
    const size_t busy = 1 + rng() % replicas;
    for (const NewSequence& one : requests)
      of_each[replica_of[one.id] = rng() % busy].push_back(one);
  }
  // Each replica's commands, so many of which are cancelled.
  std::vector<std::vector<Command>> commands(double cancels, std::mt19937_64& rng) const {
    std::vector<std::vector<Command>> out(of_each.size());
    std::ranges::transform(of_each, out.begin(),
                           [&](const auto& mine) { return shuffled_commands(mine, cancels, rng); });
    return out;
  }

  std::vector<std::vector<NewSequence>> of_each;
  std::map<SeqId, size_t> replica_of;
};

}  // namespace skiff::engine

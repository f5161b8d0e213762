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
  static std::unique_ptr<Model> replica(const std::string& folder, model::LoadFormat format,
                                        DType act, int index, int replicas,
                                        std::unique_ptr<Ops> ops) {
    return std::make_unique<Model>(folder, format, act, std::move(ops), std::nullopt,
                                   model::RankOf{.sharer = index, .sharers = replicas},
                                   Moe::kWhole);
  }
  Sharing() = default;
  // On the CPU.
  Sharing(const std::string& folder, model::LoadFormat format, DType act, int replicas) {
    for (int i = 0; i < replicas; ++i)
      models.push_back(replica(folder, format, act, i, replicas, make_cpu_ops(1 + i % 2)));
    lockstep.emplace(replicas);
  }

  // Gives each replica all of what `settings` name, as find_drafter() finds it.
  void add_drafters(const draft::Settings& settings, const std::string& folder,
                    model::LoadFormat format, uint64_t seed = 9) {
    const Precision precision = uniform_precision(models[0]->act);
    model::ModelConfig served = Model::config_of(folder, Moe::kWhole);
    if (settings.method == "eagle3")
      served.spec.taps = model::eagle_taps(settings.model, served.spec);
    const DrafterSource source = *find_drafter(settings, folder, served, precision, 1);
    for (const auto& one : models) {
      one->weights.spec.taps = served.spec.taps;
      drafters.push_back(model::load_model(
          source.folder, source.config,
          {.precision = precision, .format = format, .dummy_seed = seed, .part = source.part},
          *one->ops));
      if (drafters.back().spec.joins)
        model::share_weights(drafters.back().spec, drafters.back().weights, one->weights.weights);
    }
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
        if (!plain && !drafters.empty()) mine.drafter = &drafters[i];
        run(*models[i], mine, commands[i], own, guesses, dir, heard[i], of_each[i]);
      });
    for (std::thread& thread : threads) thread.join();
    for (const Totals& one : of_each) {
      totals.preemptions += one.preemptions;
      totals.cached += one.cached;
      totals.kept += one.kept;
      totals.drafted += one.drafted;
      totals.steps += one.steps;
      totals.chained += one.chained;
    }
  }

  // Computes one request after the other, in one replica, without drafts.
  Texts texts_of(const Setup& setup, const std::vector<NewSequence>& requests, std::mt19937_64& rng,
                 const store::TempDir& dir) {
    std::vector<std::vector<Command>> commands(models.size());
    commands.back().assign(requests.begin(), requests.end());
    std::vector<Listener> heard(models.size());
    Totals ignored;
    run_all(setup, commands, nullptr, rng, dir, heard, ignored, /*plain=*/true);
    Texts texts;
    for (const NewSequence& one : requests) texts[one.id] = heard.back().of(one.id);
    return texts;
  }

  std::vector<std::unique_ptr<Model>> models;
  std::vector<model::LoadedModel> drafters;  // none, or one for each replica
  std::optional<devices::DeviceGroup> on_devices;
  std::optional<Lockstep> lockstep;
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

// `skiff bench steps`: the time of a step against its rows, without a scheduler.
#include <cstdio>
#include <memory>
#include <ranges>
#include <set>
#include <string_view>

#include "apps/bench.h"
#include "apps/step_table.h"
#include "base/load_error.h"
#include "engine/rank_group.h"
#include "engine/resolve.h"
#include "engine/step_timer.h"

namespace skiff::apps {
namespace {

constexpr int kMaxRows = 1 << 20, kDefaultDecodes = 256;
// Rows of a step by which contexts are computed before the steps that are timed.
constexpr int kContextRows = 2048;

// How the rows of a step are divided.
struct StepKind {
  const char *name, *about;
  bool decodes, prompt;
};
constexpr StepKind kKinds[] = {{"decode", "sequences that decode", true, false},
                               {"prompt", "one prompt alone", false, true},
                               {"mixed", "a prompt beside sequences that decode", true, true}};

// Returns the kinds that `list` names, in the order of kKinds; throws UsageError for another name.
std::vector<StepKind> kinds_in(std::string_view list) {
  std::set<std::string_view> named;
  for (const auto part : std::views::split(list, ',')) named.emplace(part.begin(), part.end());
  std::vector<StepKind> out;
  for (const StepKind& kind : kKinds)
    if (named.erase(kind.name) > 0) out.push_back(kind);
  if (out.empty()) named.emplace();
  if (!named.empty())
    throw UsageError(
        fmt::format("--kinds {}: \"{}\" is none of decode, prompt, mixed", list, *named.begin()));
  return out;
}

struct Settings {
  std::vector<StepKind> kinds;
  std::vector<int> rows;
  int context = 0, beside = 0, repetitions = 0;
};

Settings settings_of(const Args& args) {
  return {.kinds = kinds_in(args.text("kinds")),
          .rows = numbers_in("rows", args.text("rows"), kMaxRows),
          .context = static_cast<int>(args.integer("context")),
          .beside = static_cast<int>(args.integer("beside")),
          .repetitions = static_cast<int>(args.integer("repetitions"))};
}

// Closes the file.
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// A rank on which any of these steps can run.
class Steps {
 public:
  Steps(const Settings& settings, engine::EngineConfig config, bool seqs_given)
      : settings_(settings) {
    const int wanted = seqs_given ? config.max_num_seqs : kDefaultDecodes;
    config.max_num_seqs = std::max(wanted, settings.beside) + 1;
    if (config.max_num_batched_tokens == 0)
      config.max_num_batched_tokens =
          std::max({settings.rows.back(), config.max_num_seqs, kContextRows});
    if (config.max_model_len == 0)
      config.max_model_len = std::max(settings.context, settings.rows.back()) + 1;
    model_ = engine::read_model(config);
    if (model_.spec.max_context > 0)
      config.max_model_len = std::min(config.max_model_len, model_.spec.max_context);
    if (settings.context >= config.max_model_len)
      throw UsageError(fmt::format("--context {} leaves no room in a context of {} tokens",
                                   settings.context, config.max_model_len));
    resolved_ = engine::resolve(config, model_);
    ranks_.emplace(resolved_, model_, log_);
    ranks_->make_executors(none_);
    ranks_->warm_up();
    runner_ = ranks_->make_runner();
    timer_.emplace(*runner_, resolved_.limits, room(), settings.context);
  }

  std::vector<TimedRows> measure(const StepKind& kind) {
    std::vector<TimedRows> out;
    for (const int rows : settings_.rows) {
      const engine::StepShape shape = shape_of(kind, rows);
      if (shape.prompt < (kind.prompt ? 1 : 0) || !timer_->fits(shape)) continue;
      if (!timer_->is_finite(shape))
        fail_load("a step of {} rows ({}) gives no numbers", rows, kind.about);
      out.push_back({rows, engine::median(timer_->seconds(shape, settings_.repetitions))});
    }
    return out;
  }

 private:
  engine::StepTimer::Room room() const {
    return {.block_size = resolved_.cache.block_size, .blocks = ranks_->first().memory().blocks};
  }
  engine::StepShape shape_of(const StepKind& kind, int rows) const {
    const int decodes = !kind.decodes ? 0 : kind.prompt ? settings_.beside : rows;
    return {.decodes = decodes, .prompt = rows - decodes};
  }

  Settings settings_;
  model::ModelConfig model_;
  engine::Resolved resolved_;
  engine::StartLog log_;
  model::HostBlocks none_;
  std::optional<engine::RankGroup> ranks_;
  std::unique_ptr<engine::Runner> runner_;
  std::optional<engine::StepTimer> timer_;
};

void print(const StepKind& kind, const std::vector<TimedRows>& steps, int context, std::FILE* csv) {
  const std::vector<double> above = above_line(steps);
  fmt::print("{}: {}\n{:>8} {:>10} {:>9} {:>10}\n", kind.name, kind.about, "rows", "ms", "above %",
             "rows/s");
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto& [rows, seconds] = steps[i];
    fmt::print("{:>8} {:>10.3f} {:>9.1f} {:>10.0f}\n", rows, seconds * 1e3, 100 * above[i],
               rows / seconds);
    if (csv != nullptr)
      fmt::print(csv, "{},{},{:.6f},{:.2f},{:.1f},{}\n", kind.name, rows, seconds * 1e3,
                 100 * above[i], rows / seconds, kind.decodes ? context : 0);
  }
  std::fflush(stdout);
}

}  // namespace

int bench_steps(const Args& args) {
  const std::string folder = model_folder(args, 1);
  const Settings settings = settings_of(args);
  const std::string path = args.text("csv");
  const File csv(path.empty() ? nullptr : std::fopen(path.c_str(), "w"), &std::fclose);
  if (!path.empty() && csv == nullptr) fail_load("{}: cannot be written (--csv)", path);
  Steps steps(settings, engine_config(args, folder), args.given("max-num-seqs"));
  fmt::print(
      "{} repetitions, the middle one; decodes behind {} tokens; mixed: beside {} decodes\n"
      "above: over the line between the best steps below and above, of at least half and at most "
      "twice as many rows\n",
      settings.repetitions, settings.context, settings.beside);
  if (csv) fmt::print(csv.get(), "kind,rows,ms,above_percent,rows_per_second,context\n");
  for (const StepKind& kind : settings.kinds)
    print(kind, steps.measure(kind), settings.context, csv.get());
  fmt::print("checked: every step once; all that it draws has a probability\n");
  if (csv && (std::fflush(csv.get()) != 0 || std::ferror(csv.get()) != 0))
    fail_load("{}: writing failed; is the disk full?", path);
  return 0;
}

}  // namespace skiff::apps

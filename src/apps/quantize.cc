// `skiff quantize`: a model folder in 16 or 32 bits becomes one in 8 or 4, one in 8-bit floats
// in 4.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <thread>
#include <utility>

#include "apps/calibration.h"
#include "apps/signals.h"
#include "base/load_error.h"
#include "base/log.h"
#include "base/processors.h"
#include "quantize/folder_writer.h"

namespace skiff::apps {
namespace {

constexpr double kGiB = 1 << 30;

std::optional<DType> kv_of(const std::string& word) {
  if (word == "int8") return DType::kI8;
  if (word == "fp8") return DType::kF8E4M3;
  return std::nullopt;
}

quantize::Settings settings_of(const Args& args, int threads) {
  quantize::Request request{
      .to = args.text("to"),
      .layout = args.text("layout"),
      .group_size = static_cast<int>(args.integer("group-size")),
      .symmetric = {},
      .ignore = args.texts("ignore"),
      .kv = kv_of(args.text("kv-cache-dtype")),
      .clip = args.on("clip-search"),
      .compensate = {},
      .shift = args.on("shift"),
      .gptq = {.damping = args.number("damping"), .act_order = args.on("act-order")},
      .min_tokens = args.integer("min-expert-tokens"),
      .threads = threads,
      .version = SKIFF_VERSION};
  if (const std::string word = args.text("symmetric"); word != "auto")
    request.symmetric = word == "true";
  if (const std::string word = args.text("rounding"); word != "auto")
    request.compensate = word == "gptq";
  return quantize::settle(request);
}

// Refuses flags that were given and would change nothing.
void check_effect(const Args& args, const quantize::Settings& settings) {
  const std::string_view to = settings.target->name;
  if (args.given("group-size") && !settings.target->grouped())
    throw UsageError(fmt::format(
        "--group-size is for weights of 4 bits; --to {} has scales of its own: leave it out", to));
  for (const char* flag : {"damping", "act-order"})
    if (args.given(flag) && !settings.compensate)
      throw UsageError(fmt::format(
          "--{} belongs to --rounding gptq, and --to {} rounds to nearest: {}, or leave it out",
          flag, to,
          settings.target->calibrated() ? "give --rounding gptq as well" : "take --to gptq"));
  if (args.given("min-expert-tokens") && !settings.target->calibrated())
    throw UsageError(
        fmt::format("--min-expert-tokens counts calibration tokens, and --to {} is not calibrated: "
                    "leave it out",
                    to));
}

std::string duration(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  if (seconds < 5400) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

int64_t tokens_of(const std::vector<quantize::Sequence>& sequences) {
  int64_t tokens = 0;
  for (const auto& sequence : sequences) tokens += std::ssize(sequence.tokens);
  return tokens;
}

void print_plan(const quantize::Settings& settings, const quantize::Data& data,
                const quantize::Estimate& estimate) {
  fmt::print(stderr,
             "{}: {}, as {}\n"
             "calibration: {} texts of {} tokens; held out: {} of {}\n"
             "about {:.2f} GiB of memory, {} on {} threads; {:.2f} GiB of weights\n",
             settings.target->name, describe(settings.format), settings.layout->name,
             data.calibration.size(), tokens_of(data.calibration), data.heldout.size(),
             tokens_of(data.heldout), static_cast<double>(estimate.memory) / kGiB,
             duration(estimate.seconds), settings.threads,
             static_cast<double>(estimate.output) / kGiB);
}

void print_report(const quantize::Report& report, const std::string& out) {
  fmt::print("{}: {} weights rounded, {} as they were; {:.3f} GiB instead of {:.3f}\n", out,
             report.units, report.plain, static_cast<double>(report.bytes_after) / kGiB,
             static_cast<double>(report.bytes_before) / kGiB);
  if (report.rounded_again > 0)
    fmt::print(
        "of 8-bit floats: {} weights rounded again to fewer bits, {} as they were, bit for bit, {} "
        "now bfloat16\n",
        report.rounded_again, report.passed, report.widened);
  if (report.folds_tried > 0)
    fmt::print("factors found for {} of {} groups of inputs\n", report.folds, report.folds_tried);
  if (report.shifts > 0) fmt::print("layers whose values were shifted: {}\n", report.shifts);
  if (report.nearest > 0 && report.error != report.nearest)
    fmt::print(
        "squared error of outputs on the calibration data: {:.1f} % of rounding to nearest\n",
        100 * report.error / report.nearest);
  if (report.few_tokens > 0)
    fmt::print("{} experts' weights saw too few tokens and are rounded to nearest\n",
               report.few_tokens);
  if (!report.quality) return;
  const quantize::Quality& q = *report.quality;
  fmt::print(
      "\nAgainst the model as it was, in float32, on {} held-out tokens\n\n"
      "| mean KL | 99.9 % KL | same first choice | perplexity before | after | log perplexity |\n"
      "|---|---|---|---|---|---|\n"
      "| {:.3e} | {:.3e} | {:.2f} % | {:.4f} | {:.4f} | {:+.5f} +- {:.5f} |\n",
      q.tokens, q.kl, q.kl_999, 100 * q.agreement, q.perplexity_before, q.perplexity_after,
      q.log_change, q.log_change_error);
}

// While it lives, SIGINT and SIGTERM remove what was written so far and end the process.
class RemovedOnSignal {
 public:
  explicit RemovedOnSignal(std::filesystem::path folder) {
    catch_signals();
    thread_ = std::thread([folder = std::move(folder)] {
      const int signal = wait_for_signal({});
      if (signal == kWoken) return;
      std::error_code ignored;
      std::filesystem::remove_all(folder, ignored);
      spdlog::warn("stopped by a signal; what was written of the new folder is removed");
      _exit(128 + signal);
    });
  }
  ~RemovedOnSignal() {
    wake_signal_wait();
    thread_.join();
  }
  RemovedOnSignal(const RemovedOnSignal&) = delete;

 private:
  std::thread thread_;
};

}  // namespace

int run_quantize(const Args& args) {
  const std::string folder = model_folder(args);
  for (const char* needed : {"to", "out"})
    if (!args.given(needed))
      throw UsageError(fmt::format(
          "skiff quantize needs --{}, as in skiff quantize models/demo --to gptq --out demo-int4",
          needed));
  const int threads =
      args.integer("threads") > 0 ? static_cast<int>(args.integer("threads")) : usable_processors();
  const quantize::Settings settings = settings_of(args, threads);
  check_effect(args, settings);
  const quantize::ModelFile file(folder);
  quantize::check_model(file, settings);
  const quantize::Job job{.out = args.text("out"),
                          .shard_bytes = static_cast<uint64_t>(args.number("shard-size") * kGiB),
                          .progress = make_progress_bar("layers")};
  quantize::check_place(job.out);
  const quantize::Data data = calibration_data(args, folder, file.config());
  const auto ops = make_cpu_ops(threads);
  print_plan(settings, data, quantize::estimate(file, settings, data, *ops));
  const RemovedOnSignal removed(quantize::partial_folder(job.out));
  print_report(quantize::quantize_model(file, settings, data, job, *ops), args.text("out"));
  return 0;
}

}  // namespace skiff::apps

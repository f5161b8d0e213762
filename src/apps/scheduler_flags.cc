#include "apps/scheduler_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "apps/flag_rows.h"

namespace skiff::apps {
namespace {

constexpr double kMaxCount = 1 << 30;
using enum Kind;

// A number of the policy is a row here and a line in read_policy(). Each flag is one line, however
// long.
// clang-format off

constexpr Flag kFlags[] = {
    {"max-num-partial-prefills", kInt, kRuns, "0", "Most prompts that may be partly computed at a time; 0: no limit.", 0, kMaxCount},
    {"max-long-partial-prefills", kInt, kRuns, "1", "Most long prompts among them; 0: no limit. Short prompts go before long ones, within bounds.", 0, kMaxCount},
    {"long-prefill-token-threshold", kInt, kRuns, "0", "Tokens above which a prompt is long; 0: what takes more than sixteen steps of --step-time, or, where no step time is aimed at, 4 % of the context; at least 512.", 0, kMaxCount},
    {"step-time", kFloat, kRuns, "0", "Milliseconds that a step with prompts should take: a shorter one lets running requests decode more often, a longer one computes prompts at a better rate. 0: the least at which prompts run at nearly the best rate measured at start-up, within bounds; longer for a prompt that is alone, to finish a prompt, and while others wait. predict, bench latency, bench throughput: no limit unless given.", 0, 1e6},
    {"priority-ageing", kInt, kServices, "1000", "With --scheduling-policy priority: how many later requests may overtake a request for each unit of priority between them. 0: priorities have no effect.", 0, 1e9},
};

// clang-format on

void read_policy(const Args& args, engine::EngineConfig& config) {
  const auto number = [&](const char* flag) { return static_cast<int>(args.integer(flag)); };
  auto& policy = config.policy;
  if (args.command() & kServices) policy.ageing = number("priority-ageing");
  policy.max_partial = number("max-num-partial-prefills");
  policy.max_long_partial = number("max-long-partial-prefills");
  policy.long_prompt = number("long-prefill-token-threshold");
  // Nobody waits for a single token of what these commands compute.
  const bool offline =
      (args.command() & (kPredict | kBench | kLibrary)) != 0 && !args.given("step-time");
  policy.step_seconds =
      offline ? std::numeric_limits<double>::infinity() : args.number("step-time") / 1e3;
  if (policy.max_partial > 0 && policy.max_long_partial > policy.max_partial)
    throw UsageError(
        fmt::format("--max-long-partial-prefills {} is more than --max-num-partial-prefills {}, "
                    "of which they are a part; it must be in [1, {}]",
                    policy.max_long_partial, policy.max_partial, policy.max_partial));
}

constexpr const char* kV1 = "ENABLE_V1_KVCACHE_SCHEDULER";
constexpr const char* kReserve = "FD_RESERVE_OUTPUT_BLOCK_NUM_FOR_DECODE_WHEN_SCHEDULE_NEW_PREFILL";
constexpr const char* kDecay =
    "FD_RESERVE_DECAY_OUTPUT_BLOCK_NUM_FOR_DECODE_WHEN_SCHEDULE_NEW_PREFILL";
constexpr const char* kLeast =
    "FD_RESERVE_MIN_OUTPUT_BLOCK_NUM_FOR_DECODE_WHEN_SCHEDULE_NEW_PREFILL";
constexpr double kMaxBlocks = 1 << 24;

std::optional<double> number_in(const Environment& environment, const char* name, double most) {
  const char* given = environment(name);
  if (given == nullptr || *given == '\0') return std::nullopt;
  const std::string_view text = given;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= most))
    throw UsageError(fmt::format("{} is \"{}\"; it must be a number in [0, {}]", name, text, most));
  return value;
}

void read_reserve(const Environment& environment, engine::EngineConfig& config) {
  auto& policy = config.policy;
  if (const auto blocks = number_in(environment, kReserve, kMaxBlocks)) policy.reserve = *blocks;
  if (const auto decay = number_in(environment, kDecay, kMaxBlocks)) policy.reserve_decay = *decay;
  if (const auto least = number_in(environment, kLeast, kMaxBlocks)) policy.reserve_min = *least;
  if (policy.reserve_min > policy.reserve)
    throw UsageError(fmt::format("{} is {}, more than {}, which is {}; it must be in [0, {}]",
                                 kLeast, policy.reserve_min, kReserve, policy.reserve,
                                 policy.reserve));
}

}  // namespace

std::span<const Flag> scheduler_rows() { return kFlags; }

std::vector<std::string> apply_scheduler_flags(const Args& args, const Environment& environment,
                                               engine::EngineConfig& config) {
  std::vector<std::string> warnings;
  read_policy(args, config);
  read_reserve(environment, config);
  const char* v1 = environment(kV1);
  const std::string_view wanted = v1 == nullptr || *v1 == '\0' ? "1" : v1;
  if (wanted != "0" && wanted != "1")
    throw UsageError(fmt::format("{} is \"{}\"; it must be 0 or 1", kV1, wanted));
  if (wanted == "0")
    warnings.push_back(fmt::format(
        "{}=0 asks for FastDeploy's older scheduler; there is one here, like V1: one pool of "
        "blocks, given on demand",
        kV1));
  if (args.given("kv-cache-ratio"))
    warnings.push_back(
        fmt::format("--kv-cache-ratio {}: there is one pool of blocks for prompts and output, so "
                    "nothing is divided",
                    args.text("kv-cache-ratio")));
  if (args.given("static-decode-blocks")) {
    const auto blocks = static_cast<double>(args.integer("static-decode-blocks"));
    config.policy.reserve_min = blocks;
    config.policy.reserve = std::max(config.policy.reserve, blocks);
    warnings.push_back(fmt::format(
        "--static-decode-blocks {}: instead of setting blocks aside, a request is let in while {} "
        "blocks for each running sequence stay free",
        blocks, blocks));
  }
  return warnings;
}

void check_admission_flags(const Args& args) {
  const int64_t waiting = args.integer("max-waiting-time");
  const double timeout = args.number("request-timeout");
  if (waiting == 0)
    throw UsageError(
        "--max-waiting-time 0 would refuse every request, since each waits for the next step; it "
        "must be -1 (for ever) or in [1, 604800] seconds");
  if (timeout > 0 && static_cast<double>(waiting) > timeout)
    throw UsageError(
        fmt::format("--max-waiting-time {} is more than --request-timeout {}, which ends a request "
                    "before; it must be -1 or in [1, {}] seconds",
                    waiting, timeout, timeout));
}

}  // namespace skiff::apps

#include "apps/speculative_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/json.h"
#include "base/log.h"
#include "draft/methods.h"

namespace skiff::apps {
namespace {

constexpr const char* kFlag = "--speculative-config";
constexpr int kMaxDraftRanks = 64;  // as --tensor-parallel-size
constexpr int kMostToken = 1 << 24;
constexpr int kEagleTokens = 3;          // heads are trained on rows of their own, too
constexpr const char* kNaive = "naive";  // FastDeploy's way of speculating without drafts
constexpr const char* kWithNgram = "with_ngram";

bool is_eagle(std::string_view method) {
  return method == draft::kEagle || method == draft::kEagle3;
}

[[noreturn]] void refuse(const std::string& what) {
  throw UsageError(fmt::format("{}: {}", kFlag, what));
}

int integer_of(const std::string& key, const Json& value, int low, int high) {
  if (!value.is_number_integer() || value < low || value > high)
    refuse(
        fmt::format("{} is {}; it must be a number from {} to {}", key, value.dump(), low, high));
  return value.get<int>();
}

bool boolean_of(const std::string& key, const Json& value) {
  if (!value.is_boolean())
    refuse(fmt::format("{} is {}; it must be true or false", key, value.dump()));
  return value.get<bool>();
}

// A key with the only value that it can have here.
auto only(Json value, const char* why) {
  return [value = std::move(value), why](const std::string& key, const Json& given,
                                         draft::Settings&) {
    if (given != value)
      refuse(fmt::format("{} is {}; it can only be {}: {}", key, given.dump(), value.dump(), why));
  };
}

void read_tokens(const std::string& key, const Json& value, draft::Settings& to) {
  to.tokens = integer_of(key, value, 1, draft::kMaxTokens);
}
void read_most(const std::string& key, const Json& value, draft::Settings& to) {
  to.max_ngram = integer_of(key, value, 1, draft::kMaxNgram);
}
void read_least(const std::string& key, const Json& value, draft::Settings& to) {
  to.min_ngram = integer_of(key, value, 1, draft::kMaxNgram);
}
void read_depth(const std::string& key, const Json& value, draft::Settings& to) {
  to.max_depth = integer_of(key, value, 1, 1 << 20);
}
void read_factor(const std::string& key, const Json& value, draft::Settings& to) {
  if (!value.is_number() || !(value > 0) || !(value <= 1e6))
    refuse(fmt::format("{} is {}; it must be a number above 0 and at most 1000000", key,
                       value.dump()));
  to.max_factor = value.get<double>();
}

void read_model(const std::string& key, const Json& value, draft::Settings& to) {
  if (!value.is_string() || value.get<std::string>().empty())
    refuse(fmt::format("{} is {}; it must be a folder", key, value.dump()));
  to.model = value.get<std::string>();
}

void read_quantization(const std::string& key, const Json& value, draft::Settings& to) {
  if (value.is_null()) return;
  if (!value.is_string())
    refuse(fmt::format("{} is {}; it must be a name that --quantization knows, or null", key,
                       value.dump()));
  to.quantization = value.get<std::string>();
}

void read_logprobs(const std::string& key, const Json& value, draft::Settings& to) {
  to.logprobs = boolean_of(key, value);
}

void read_ranks(const std::string& key, const Json& value, draft::Settings& to) {
  to.ranks = integer_of(key, value, 1, kMaxDraftRanks);
}

// What they mean together is read by read_steps().
void check_steps(const std::string& key, const Json& value, draft::Settings&) {
  integer_of(key, value, 1, draft::kMaxTokens);
}
void check_mtp_strategy(const std::string& key, const Json& value, draft::Settings&) {
  if (value != "default" && value != kWithNgram)
    refuse(
        fmt::format("{} is {}; it must be \"default\", where the module makes all drafts, or "
                    "\"{}\", where n-grams of the text append some to them",
                    key, value.dump(), kWithNgram));
}

bool appends_ngrams(const Json& json) {
  return json.contains("mtp_strategy") && json["mtp_strategy"] == kWithNgram;
}

// The module runs once for each draft that it makes; with n-grams behind them once, unless somebody
// says more.
void read_steps(const Json& json, draft::Settings& to) {
  const bool appends = appends_ngrams(json);
  const int steps = json.value("num_model_steps", appends ? 1 : to.tokens);
  if (appends && steps == to.tokens)
    refuse(fmt::format(
        "mtp_strategy is \"{}\", but num_model_steps is {}, as num_speculative_tokens: n-grams of "
        "the text would make no draft; raise num_speculative_tokens, or leave mtp_strategy out",
        kWithNgram, steps));
  if (steps > to.tokens)
    refuse(fmt::format(
        "num_model_steps is {} and num_speculative_tokens {}; the module runs once for each draft, "
        "so it cannot be more",
        steps, to.tokens));
  if (!appends && steps != to.tokens)
    refuse(fmt::format(
        "num_model_steps is {} and num_speculative_tokens {}; they must be equal, unless "
        "\"mtp_strategy\": \"{}\" lets n-grams of the text make the other drafts",
        steps, to.tokens, kWithNgram));
  if (steps < to.tokens) to.model_steps = steps;
}

struct Strategy {
  std::string_view name;
  DraftRule rule;
};
constexpr Strategy kStrategies[] = {{"target_match", DraftRule::kTargetMatch},
                                    {"greedy", DraftRule::kGreedy},
                                    {"rejection", DraftRule::kRejection},
                                    {"topp", DraftRule::kTopP},
                                    {"relaxed", DraftRule::kRelaxed}};

void read_strategy(const std::string& key, const Json& value, draft::Settings& to) {
  const auto* found = std::ranges::find_if(
      kStrategies, [&](const Strategy& strategy) { return value == strategy.name; });
  if (found == std::end(kStrategies))
    refuse(
        fmt::format("{} is {}; it must be \"target_match\", which never changes a text, "
                    "\"rejection\", which keeps the distribution, \"greedy\", \"topp\" or "
                    "\"relaxed\"",
                    key, value.dump()));
  to.check.rule = found->rule;
}

void read_window(const std::string& key, const Json& value, draft::Settings& to) {
  to.check.window = integer_of(key, value, 1, draft::kMaxTokens);
}
void read_candidates(const std::string& key, const Json& value, draft::Settings& to) {
  to.check.candidates = integer_of(key, value, 1, DraftCheck::kMostBest);
}
void read_best(const std::string& key, const Json& value, draft::Settings& to) {
  to.check.best = integer_of(key, value, 1, DraftCheck::kMostBest);
}
void read_delta(const std::string& key, const Json& value, draft::Settings& to) {
  if (!value.is_number() || !(value >= 0) || !(value <= 1))
    refuse(fmt::format("{} is {}; it must be a number from 0 to 1", key, value.dump()));
  to.check.delta = value.get<float>();
}
void read_begin(const std::string& key, const Json& value, draft::Settings& to) {
  to.check.think_begin = integer_of(key, value, 0, kMostToken);
}
void read_end(const std::string& key, const Json& value, draft::Settings& to) {
  to.check.think_end = integer_of(key, value, 0, kMostToken);
}

// Keys of a strategy have no effect with another one.
void check_strategy(const Json& json, const DraftCheck& check) {
  const auto needs = [&](std::initializer_list<const char*> keys, DraftRule rule,
                         const char* name) {
    for (const char* key : keys)
      if (json.contains(key) && check.rule != rule)
        refuse(fmt::format("{} has no effect without \"verify_strategy\": \"{}\"; leave it out",
                           key, name));
  };
  needs({"verify_window", "max_candidate_len"}, DraftRule::kTopP, "topp");
  needs({"relaxed_topk", "relaxed_delta", "begin_thinking_phase_token", "end_thinking_phase_token"},
        DraftRule::kRelaxed, "relaxed");
  if (check.rule == DraftRule::kRelaxed && (check.think_begin < 0 || check.think_end < 0))
    refuse(
        "verify_strategy \"relaxed\" needs \"begin_thinking_phase_token\" and "
        "\"end_thinking_phase_token\", the numbers of the tokens between which the model thinks "
        "(of DeepSeek-R1 128798 and 128799)");
}

// What they mean together is read by forced_rate().
void check_mode(const std::string& key, const Json& value, draft::Settings&) {
  boolean_of(key, value);
}
void check_rate(const std::string& key, const Json& value, draft::Settings&) {
  if (!value.is_number() || !(value >= 0) || !(value <= 1))
    refuse(fmt::format("{} is {}; it must be a number from 0 to 1", key, value.dump()));
}
void check_policy(const std::string& key, const Json& value, draft::Settings&) {
  if (value != "normal" && value != "accept_all" && value != "reject_all")
    refuse(fmt::format("{} is {}; it must be \"normal\", \"accept_all\" or \"reject_all\"", key,
                       value.dump()));
}

// Returns the rate at which drafts are kept whatever the model says, if a benchmark asks for one.
std::optional<double> forced_rate(const Json& json, bool benchmark) {
  constexpr double kUsualRate = 0.8;
  const std::string policy = json.value("accept_policy", "normal");
  if (!json.value("benchmark_mode", false)) {
    for (const char* key : {"accept_policy", "benchmark_acceptance_rate"})
      if (json.contains(key) && json[key] != "normal")
        refuse(
            fmt::format("{} is {}, which has no effect without \"benchmark_mode\": true of skiff "
                        "bench; leave it out",
                        key, json[key].dump()));
    return std::nullopt;
  }
  if (!benchmark)
    refuse(
        "benchmark_mode is true, which keeps drafts whatever the model says, so that texts are "
        "wrong; only skiff bench has it: leave it out");
  if (policy != "normal" && json.contains("benchmark_acceptance_rate"))
    refuse(
        fmt::format("accept_policy {} and benchmark_acceptance_rate both say what is kept; give "
                    "one of them",
                    policy));
  if (policy != "normal") return policy == "accept_all" ? 1 : 0;
  return json.value("benchmark_acceptance_rate", kUsualRate);
}

struct Key {
  std::string_view name;
  std::string_view same_as;  // the key that it is another name of, or its own
  std::string_view method;   // the methods that it is for, see has_use(); empty: any
  std::function<void(const std::string& key, const Json& value, draft::Settings& to)> read;
};

const std::vector<Key>& keys() {
  static const std::vector<Key> all{
      {"num_speculative_tokens", "", "", read_tokens},
      {"max_ngram_size", "", "ngram", read_most},
      {"min_ngram_size", "", "ngram", read_least},
      {"prompt_lookup_max", "max_ngram_size", "ngram", read_most},
      {"prompt_lookup_min", "min_ngram_size", "ngram", read_least},
      {"suffix_decoding_max_tree_depth", "", "suffix", read_depth},
      {"suffix_decoding_max_spec_factor", "", "suffix", read_factor},
      {"suffix_decoding_max_cached_requests", "", "suffix",
       only(0, "answers to others are not searched, since timing would tell of them")},
      {"suffix_decoding_min_token_prob", "", "suffix",
       only(0, "how many drafts are checked follows from how many were kept")},
      {"verify_strategy", "", "", read_strategy},
      {"verify_window", "", "", read_window},
      {"max_candidate_len", "", "", read_candidates},
      {"relaxed_topk", "", "", read_best},
      {"relaxed_delta", "", "", read_delta},
      {"begin_thinking_phase_token", "", "", read_begin},
      {"end_thinking_phase_token", "", "", read_end},
      {"benchmark_mode", "", "", check_mode},
      {"benchmark_acceptance_rate", "", "", check_rate},
      {"accept_policy", "", "", check_policy},
      {"model", "", "weights", read_model},
      {"draft_tensor_parallel_size", "", "weights", read_ranks},
      {"quantization", "", "weights", read_quantization},
      {"enable_draft_logprob", "", "weights", read_logprobs},
      {"num_model_steps", "", "mtp", check_steps},
      {"mtp_strategy", "", "mtp", check_mtp_strategy},
      {"num_gpu_block_expand_ratio", "", "mtp",
       only(1, "the module's keys and values are in the same blocks")},
  };
  return all;
}

// Returns whether a key for `methods` means something with `method`.
bool has_use(std::string_view methods, std::string_view method) {
  if (methods.empty() || methods == method) return true;
  if (methods == "weights") return draft::has_weights(method);
  return methods == "ngram" && method == "inference_with_reference";
}

std::string known_methods() {
  std::string names;
  const auto add = [&](std::string_view name) {
    if (!names.empty()) names += ", ";
    names += name;
  };
  for (const draft::Method& method : draft::methods()) add(method.name);
  for (const auto& name : draft::kWithWeights) add(name);
  add(kNaive);
  return names;
}

std::string method_of(const Json& json) {
  if (!json.contains("method"))
    refuse(fmt::format("\"method\" is missing; it is one of {}", known_methods()));
  const Json& value = json["method"];
  if (!value.is_string()) refuse(fmt::format("method is {}; it must be a string", value.dump()));
  std::string method = value.get<std::string>();
  if (method == "ngram_match") method = "ngram";
  if (draft::find_method(method) != nullptr || draft::has_weights(method)) return method;
  if (method == kNaive) return method;
  for (const char* later : {"medusa", "hydra"})
    if (method == later)
      refuse(fmt::format("method {} is not supported yet; there are {}", method, known_methods()));
  refuse(fmt::format("method is \"{}\"; it must be one of {}", method, known_methods()));
}

const Key& key_named(const std::string& name) {
  const auto found = std::ranges::find(keys(), name, &Key::name);
  if (found != keys().end()) return *found;
  std::string known = "method";
  for (const Key& key : keys()) known += fmt::format(", {}", key.name);
  refuse(fmt::format("there is no key \"{}\"; the keys are {}", name, known));
}

Json json_of(const Args& args) {
  Json json = Json::object();
  if (const std::string text = args.text("speculative-config"); !text.empty()) {
    json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) refuse(fmt::format("{} is not a JSON object", text));
  }
  const auto put = [&](const char* flag, const char* key, const Json& value) {
    if (json.contains(key))
      throw UsageError(
          fmt::format("--{} and \"{}\" of {} are the same; give one of them", flag, key, kFlag));
    json[key] = value;
  };
  for (const auto& [flag, key] : {std::pair{"speculative-method", "method"},
                                  std::pair{"speculative-verify-strategy", "verify_strategy"}})
    if (args.given(flag)) put(flag, key, args.text(flag));
  for (const auto& [flag, key] : {std::pair{"speculative-num-tokens", "num_speculative_tokens"},
                                  std::pair{"speculative-max-ngram-size", "max_ngram_size"},
                                  std::pair{"speculative-min-ngram-size", "min_ngram_size"}})
    if (args.given(flag)) put(flag, key, args.integer(flag));
  return json;
}

// Keys that were given, under the names of which they may be another name.
using Given = std::map<std::string_view, std::string>;

Given read_keys(const Json& json, draft::Settings& settings) {
  Given seen;
  for (const auto& [name, value] : json.items()) {
    if (name == "method") continue;
    const Key& key = key_named(name);
    const bool appended = key.method == "ngram" && appends_ngrams(json);
    if (!has_use(key.method, settings.method) && !(appended && settings.method == draft::kMtp))
      refuse(fmt::format("{} has no effect with method {}; leave it out", name, settings.method));
    const auto [before, is_new] = seen.emplace(key.same_as.empty() ? key.name : key.same_as, name);
    if (!is_new)
      refuse(fmt::format("{} and {} are the same; give one of them", before->second, name));
    key.read(name, value, settings);
  }
  if (settings.method == draft::kMtp) read_steps(json, settings);
  return seen;
}

void check_model(const draft::Settings& settings) {
  if (settings.method == draft::kDraftModel && settings.model.empty())
    refuse(
        "method draft_model needs \"model\", the folder of a smaller model with the same tokens");
  if (is_eagle(settings.method) && settings.model.empty())
    refuse(
        fmt::format("method {} needs \"model\", the folder of a head that was trained for the "
                    "served model",
                    settings.method));
}

// One bound of the n-grams moves the other, unless both were given.
void settle_ngrams(const Given& seen, draft::Settings& settings) {
  if (!seen.contains("min_ngram_size"))
    settings.min_ngram = std::min(settings.min_ngram, settings.max_ngram);
  if (!seen.contains("max_ngram_size"))
    settings.max_ngram = std::max(settings.min_ngram, settings.max_ngram);
  if (settings.min_ngram > settings.max_ngram)
    refuse(fmt::format("{} is {}, more than {}, which is {}; it must be from 1 to {}",
                       seen.at("min_ngram_size"), settings.min_ngram, seen.at("max_ngram_size"),
                       settings.max_ngram, settings.max_ngram));
}

}  // namespace

void read_speculation(const Args& args, engine::EngineConfig& config) {
  const Json json = json_of(args);
  if (json.empty() && !args.given("speculative-config")) return;
  draft::Settings settings{.method = method_of(json)};
  if (settings.method == draft::kMtp) settings.tokens = 1;  // what modules are trained for
  if (is_eagle(settings.method)) settings.tokens = kEagleTokens;
  const Given seen = read_keys(json, settings);
  check_strategy(json, settings.check);
  settings.forced_rate = forced_rate(json, args.command() == kBench);
  check_model(settings);
  settle_ngrams(seen, settings);
  if (settings.method == kNaive)
    spdlog::info("{}: method {} drafts no tokens, so nothing is speculated", kFlag, kNaive);
  else
    config.speculation = settings;
}

}  // namespace skiff::apps

#include "apps/chat/settings.h"

#include <algorithm>

#include "apps/commands.h"
#include "base/nearest.h"

namespace skiff::apps {
namespace {

constexpr std::string_view kNames[] = {"temperature",
                                       "top-p",
                                       "top-k",
                                       "min-p",
                                       "max-tokens",
                                       "min-tokens",
                                       "repetition-penalty",
                                       "presence-penalty",
                                       "frequency-penalty",
                                       "seed"};

constexpr std::string_view kRandom = "random";  // a seed that is drawn anew for each answer

std::string with(std::string name, char from, char to) {
  std::replace(name.begin(), name.end(), from, to);
  return name;
}

Args args_of(const std::map<std::string, std::string, std::less<>>& values) {
  std::vector<std::string> words;
  for (const auto& [name, value] : values)
    if (value != kRandom) words.push_back(fmt::format("--{}={}", name, value));
  return Args(kChat, words);
}

std::string recommended_value(std::string_view name, const model::GenerationDefaults& g) {
  if (name == "temperature") return fmt::format("{}", g.do_sample ? g.temperature : 0);
  if (name == "top-p") return fmt::format("{}", g.top_p);
  if (name == "top-k") return fmt::format("{}", g.top_k);
  if (name == "min-p") return fmt::format("{}", g.min_p);
  if (name == "max-tokens") return fmt::format("{}", g.max_new_tokens);
  if (name == "repetition-penalty") return fmt::format("{}", g.repetition);
  return name == "seed" ? std::string(kRandom) : "";
}

Error unknown(const std::string& name) {
  const std::string_view best = nearest(name, {std::begin(kNames), std::end(kNames)});
  return Error{Code::kInvalid,
               fmt::format("no setting {}{} (/set lists them)", with(name, '-', '_'),
                           best.empty() ? ""
                                        : fmt::format("; did you mean {}?",
                                                      with(std::string(best), '-', '_')))};
}

}  // namespace

ChatSettings::ChatSettings(const Args& args, const model::GenerationDefaults& recommended) {
  for (const std::string_view name : kNames) {
    std::string value = args.given(name) ? "" : recommended_value(name, recommended);
    if (value.empty()) value = args.text(name);
    initial_.emplace(name, std::move(value));
  }
  values_ = initial_;
  args_of(values_);  // throws UsageError for a recommendation that no flag would accept
}

Status ChatSettings::set(std::string name, const std::string& value) {
  name = with(std::move(name), '_', '-');
  const auto at = values_.find(name);
  if (at == values_.end()) return unknown(name);
  if (value == "default") {
    at->second = initial_.find(name)->second;
    return ok();
  }
  try {
    if (name != "seed" || value != kRandom) args_of({{name, value}});
  } catch (const UsageError& e) {
    return Error{Code::kInvalid, e.what(), name};
  }
  at->second = value;
  return ok();
}

Result<std::string> ChatSettings::show(std::string name) const {
  name = with(std::move(name), '_', '-');
  const auto at = values_.find(name);
  if (at == values_.end()) return unknown(name);
  return fmt::format("  {:<20} {}\n", with(name, '-', '_'), at->second);
}

std::string ChatSettings::table() const {
  std::string out;
  for (const std::string_view name : kNames) out += *show(std::string(name));
  return out;
}

int ChatSettings::max_tokens() const {
  return static_cast<int>(args_of(values_).integer("max-tokens"));
}

SamplingParams ChatSettings::params() const { return sampling_params(args_of(values_)); }

void ChatSettings::apply(service::Request& request, uint64_t attempt) const {
  request.params = params();
  request.params.seed += attempt;
  request.seed_given = values_.find("seed")->second != kRandom;
  request.stop.max_tokens = max_tokens();
}

}  // namespace skiff::apps

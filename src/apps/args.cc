#include "apps/args.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "apps/flag_named.h"
#include "apps/foreign_flags.h"
#include "base/check.h"
#include "base/nearest.h"

namespace skiff::apps {
namespace {

std::string dashed(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

// A name may mean different things to different commands; the meaning for `command` goes first.
const Flag* find_flag(std::string_view name, Commands command) {
  const Flag* elsewhere = nullptr;
  for (const FlagGroup& group : flag_groups())
    for (const Flag& flag : group.flags) {
      if (flag.name != name && (flag.alias.empty() || flag.alias != name)) continue;
      if (flag.commands & command) return &flag;
      if (!elsewhere) elsewhere = &flag;
    }
  return elsewhere;
}

std::string range(const Flag& flag) {
  if (flag.min == flag.max) return "";
  if (std::isinf(flag.max)) return fmt::format(" of at least {}", flag.min);
  return fmt::format(" in [{}, {}]", flag.min, flag.max);
}

template <class T>
bool parses(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

bool within(const Flag& flag, double value) {
  return std::isfinite(value) && (flag.min == flag.max || (value >= flag.min && value <= flag.max));
}

void check_number(const Flag& flag, const std::string& value) {
  double number = 0;
  int64_t whole = 0;
  const bool good = flag.kind == Kind::kInt
                        ? parses(value, &whole) && within(flag, static_cast<double>(whole))
                        : parses(value, &number) && within(flag, number);
  if (!good)
    throw UsageError(fmt::format("--{} wants {}{}, not \"{}\"", flag.name,
                                 flag.kind == Kind::kInt ? "a whole number" : "a number",
                                 range(flag), value));
}

void check_choice(const Flag& flag, const std::string& value) {
  std::string_view rest = flag.choices;
  while (!rest.empty()) {
    const size_t bar = rest.find('|');
    if (rest.substr(0, bar) == value) return;
    rest = bar == std::string_view::npos ? "" : rest.substr(bar + 1);
  }
  throw UsageError(fmt::format("--{} is one of {}, not \"{}\"", flag.name, flag.choices, value));
}

std::string truth(const Flag& flag, const std::string& value, bool negated) {
  const bool yes = value == "true" || value == "1" || value == "True";
  const bool no = value == "false" || value == "0" || value == "False";
  if (!yes && !no)
    throw UsageError(fmt::format("--{} is a switch: true or false, not \"{}\"", flag.name, value));
  return yes != negated ? "true" : "false";
}

[[noreturn]] void unknown(Commands command, const std::string& name) {
  std::vector<std::string_view> names;
  for (const FlagGroup& group : flag_groups())
    for (const Flag& flag : group.flags)
      if (flag.commands & command) names.push_back(flag.name);
  const auto has = [&](std::string_view flag) {
    return std::ranges::find(names, flag) != names.end();
  };
  const std::string_view here = flag_here(name);
  const bool translated = has(here) || (here.starts_with("no-") && has(here.substr(3)));
  const std::string_view best = translated ? here : nearest(name, names);
  const std::string hint = best.empty() ? ""
                           : translated ? fmt::format("; here it is --{}", best)
                                        : fmt::format("; did you mean --{}?", best);
  throw UsageError(
      fmt::format("unknown flag {}{}{} (see {})", name.size() == 1 ? "-" : "--", name, hint,
                  command == kLibrary ? "docs/python.md" : spoken_name(command) + " --help"));
}

// What a word on the command line is.
struct Word {
  bool is_flag = false;
  std::string name;                  // with dashes between words and none in front
  std::optional<std::string> value;  // behind an equals sign
};

// One dash does where the name is known; a letter behind it makes the word a flag in any case.
Word read_word(const std::string& word, Commands command) {
  if (word.size() < 2 || word[0] != '-') return {};
  const size_t dashes = word.starts_with("--") ? 2 : 1, equals = word.find('=');
  Word out = {
      .name = dashed(word.substr(dashes, equals == std::string::npos ? equals : equals - dashes))};
  if (equals != std::string::npos) out.value = word.substr(equals + 1);
  out.is_flag = dashes == 2 || find_flag(out.name, command) || (word[1] >= 'a' && word[1] <= 'z') ||
                (word[1] >= 'A' && word[1] <= 'Z');
  return out;
}

// Returns the flag, which `negated` says is switched off.
const Flag& known_flag(const std::string& name, Commands command, bool& negated) {
  const Flag* flag = find_flag(name, command);
  negated = !flag && name.starts_with("no-");
  if (negated) flag = find_flag(name.substr(3), command);
  if (!flag || (negated && flag->kind != Kind::kSwitch)) unknown(command, name);
  return *flag;
}

bool is_truth(const std::string& word) {
  return word == "true" || word == "false" || word == "True" || word == "False";
}

// Returns whether the word behind a flag is meant as another flag, not as its value: an empty
// variable leaves nothing where a value was to be.
bool is_other_flag(const std::string& word, Commands command) {
  if (!word.starts_with("--")) return false;
  const std::string name = read_word(word, command).name;
  return find_flag(name, command) ||
         (name.starts_with("no-") && find_flag(name.substr(3), command));
}

}  // namespace

std::string_view command_name(Commands command) {
  switch (command) {
    case kServe:
      return "serve";
    case kPredict:
      return "predict";
    case kChat:
      return "chat";
    case kBench:
      return "bench";
    case kTokenize:
      return "tokenize";
    case kInspect:
      return "inspect";
    case kConstrain:
      return "constrain";
    case kQuantize:
      return "quantize";
    case kStart:
    case kStartServe:
      return "start";
    case kStop:
      return "stop";
    case kLibrary:
      return "libskiff";
    case kRoute:
      return "route";
    case kDownload:
      return "download";
    default:
      return "?";
  }
}

std::string spoken_name(Commands command) {
  return command == kLibrary ? "libskiff" : fmt::format("skiff {}", command_name(command));
}

const Flag* flag_named(std::string_view name, Commands command) {
  return find_flag(dashed(name), command);
}

Args::Args(Commands command, std::span<const std::string> words) : command_(command) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") {
      positional_.insert(positional_.end(), words.begin() + static_cast<ptrdiff_t>(i) + 1,
                         words.end());
      return;
    }
    const Word word = read_word(words[i], command);
    if (!word.is_flag) {
      positional_.push_back(words[i]);
      continue;
    }
    bool negated = false;
    const Flag& flag = known_flag(word.name, command, negated);
    const bool last = i + 1 == words.size();
    if (word.value) {
      take(flag, *word.value, negated);
    } else if (flag.kind == Kind::kSwitch) {
      take(flag, !last && is_truth(words[i + 1]) ? words[++i] : "true", negated);
    } else if (last) {
      throw UsageError(fmt::format("--{} needs a value", flag.name));
    } else if (is_other_flag(words[i + 1], command)) {
      throw UsageError(
          fmt::format("--{0} needs a value, but the flag {1} follows; a value that begins with -- "
                      "is given as --{0}=VALUE",
                      flag.name, words[i + 1].substr(0, words[i + 1].find('='))));
    } else {
      take(flag, words[++i], negated);
    }
  }
}

bool wants_help(Commands command, std::span<const std::string> words) {
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (words[i] == "--help" || words[i] == "-h") return true;
    const Word word = read_word(words[i], command);
    const Flag* flag = word.is_flag && !word.value ? find_flag(word.name, command) : nullptr;
    if (flag && flag->kind != Kind::kSwitch) ++i;
  }
  return false;
}

void Args::take(const Flag& flag, std::string value, bool negated) {
  if (flag.kind == Kind::kInt || flag.kind == Kind::kFloat) check_number(flag, value);
  if (flag.kind == Kind::kChoice) check_choice(flag, value);
  if (flag.kind == Kind::kSwitch) value = truth(flag, value, negated);
  std::vector<std::string>& values = values_[std::string(flag.name)];
  const bool first = values.empty();
  if (!flag.repeatable) values.clear();
  values.push_back(std::move(value));
  if (!first) return;
  if (!(flag.commands & command_))
    warnings_.push_back(
        fmt::format("--{} does not apply to {}; it is ignored", flag.name, spoken_name(command_)));
  else if (flag.standing == Standing::kLater)
    warnings_.push_back(
        fmt::format("--{} is known but not implemented yet; it is ignored", flag.name));
  else if (flag.standing == Standing::kMeaningless)
    warnings_.push_back(fmt::format("--{} has no meaning in Skiff; it is ignored", flag.name));
}

const Flag& Args::flag(std::string_view name) const {
  const Flag* found = find_flag(name, command_);
  SKIFF_CHECK(found && found->name == name, "no flag {} in the table", name);
  return *found;
}

std::vector<std::string> Args::words(Commands command) const {
  std::vector<std::string> words;
  for (const auto& [name, values] : values_)
    if (const Flag* found = find_flag(name, command); found && (found->commands & command) != 0)
      for (const std::string& value : values) words.push_back(fmt::format("--{}={}", name, value));
  if (positional_.empty()) return words;
  words.push_back("--");
  words.insert(words.end(), positional_.begin(), positional_.end());
  return words;
}

std::string Args::text(std::string_view name) const {
  const Flag& f = flag(name);
  const auto it = values_.find(std::string(name));
  return it == values_.end() ? std::string(f.fallback) : it->second.back();
}

std::vector<std::string> Args::texts(std::string_view name) const {
  const auto it = values_.find(std::string(flag(name).name));
  return it == values_.end() ? std::vector<std::string>{} : it->second;
}

bool Args::on(std::string_view name) const { return text(name) == "true"; }

int64_t Args::integer(std::string_view name) const {
  int64_t value = 0;
  const std::string given = text(name);
  SKIFF_CHECK(given.empty() || parses(given, &value), "--{} {}", name, given);
  return value;
}

double Args::number(std::string_view name) const {
  double value = 0;
  const std::string given = text(name);
  SKIFF_CHECK(given.empty() || parses(given, &value), "--{} {}", name, given);
  return value;
}

}  // namespace skiff::apps

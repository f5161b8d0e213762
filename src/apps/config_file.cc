#include "apps/config_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "apps/flag_named.h"
#include "apps/yaml.h"
#include "base/log.h"

namespace skiff::apps {
namespace {

// One key of the file.
class Entry {
 public:
  Entry(const std::string& key, const YamlNode& value, const std::string& where, Commands command)
      : key_(key),
        value_(value),
        where_(fmt::format("{}:{}", where, value.line)),
        command_(command),
        flag_(flag_named(key, command)) {}

  // The flag that words() give a value: that of the key or, of a contrary as no-webui, the switch.
  // words() refuses a key that has none.
  const Flag& flag() const { return flag_ ? *flag_ : *contrary(); }

  std::vector<std::string> words() const {
    if (key_.empty() || key_.front() == '-') refuse("write the flag without dashes in front");
    if (flag_ && flag_->name == "config") refuse("a file cannot name another");
    std::vector<std::string> words;
    if (value_.kind == YamlNode::kList) {
      if (!flag_ || !flag_->repeatable) refuse("it has one value, and no list of them");
      for (const YamlNode& item : value_.items) words.push_back(word(item));
    } else {
      words.push_back(word(value_));
    }
    check(words);
    if (!flag_ && !contrary()) refuse("it is no flag");
    return words;
  }

  [[noreturn]] void refuse(std::string_view why) const {
    throw UsageError(fmt::format("{}: {}: {}", where_, escaped(key_), why));
  }

 private:
  const Flag* contrary() const {
    const bool negated = key_.starts_with("no-") || key_.starts_with("no_");
    return negated ? flag_named(std::string_view(key_).substr(3), command_) : nullptr;
  }

  // The command line's own checks, with the file's line in front of what they say.
  void check(const std::vector<std::string>& words) const {
    try {
      const Args alone(command_, words);
    } catch (const UsageError& e) {
      throw UsageError(fmt::format("{}: {}", where_, e.what()));
    }
  }

  std::string word(const YamlNode& value) const {
    if (value.kind == YamlNode::kList) refuse("a list of lists has no meaning");
    if (value.is_null()) refuse("it has no value");
    return fmt::format("--{}={}", key_, text_of(value));
  }

  std::string text_of(const YamlNode& value) const {
    if (value.kind == YamlNode::kObject) {
      if (!flag_ || flag_->kind != Kind::kText) refuse("it has a value, and no keys of its own");
      return value.json().dump();
    }
    const bool is_switch = !flag_ || flag_->kind == Kind::kSwitch;
    if (const auto yes = value.truth(); yes && is_switch) return *yes ? "true" : "false";
    return value.text;
  }

  const std::string& key_;
  const YamlNode& value_;
  const std::string where_;
  const Commands command_;
  const Flag* flag_;
};

bool is_given(const Flag& flag, const Args& given) {
  return given.given(flag.name) || (flag.name == "model" && !given.positional().empty());
}

}  // namespace

std::vector<std::string> config_words(std::string_view text, const std::string& where,
                                      const Args& given) {
  const YamlNode root = read_yaml(text, where);
  if (root.kind != YamlNode::kObject)
    throw UsageError(
        fmt::format("{}:{}: expected keys with values, as max-model-len: 4096", where, root.line));
  std::vector<std::string> all;
  std::set<std::string_view> seen;
  for (size_t i = 0; i < root.keys.size(); ++i) {
    const Entry entry(root.keys[i], root.items[i], where, given.command());
    const std::vector<std::string> words = entry.words();
    const Flag& flag = entry.flag();
    if (!seen.insert(flag.name).second) entry.refuse("the same flag stands above");
    if (!is_given(flag, given)) all.insert(all.end(), words.begin(), words.end());
  }
  return all;
}

std::vector<std::string> config_file_words(const Args& given) {
  if (!given.given("config")) return {};
  const std::string path = given.text("config");
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw UsageError(fmt::format("--config {}: no such file", path));
  std::ifstream in(path, std::ios::binary);
  std::string text(kMaxYamlBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || (!in && !in.eof()))
    throw UsageError(fmt::format("--config {}: cannot be read", path));
  text.resize(static_cast<size_t>(in.gcount()));
  return config_words(text, path, given);
}

}  // namespace skiff::apps

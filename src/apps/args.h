// apps/args.h -- the command line of every `skiff` command, read by one table of flags.
//
// Accepted forms: --max-model-len 4096, --max-model-len=4096, --max_model_len 4096, switches as
// --ignore-eos, --no-ignore-eos, --ignore-eos=false or --ignore-eos false, and positional values,
// which are all that follows the word "--".
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace skiff::apps {

// A mistake on the command line. what() is one line; main prints it and exits with code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum Commands : unsigned {
  kServe = 1,
  kPredict = 2,
  kChat = 4,
  kBench = 8,
  kTokenize = 16,
  kInspect = 32,
  kConstrain = 64,
  kQuantize = 128,
  kDownload = 256,
  kStart = 1024,
  kStop = 2048,
  kStartServe = kStart | kServe,                  // the flags of `skiff start`
  kLibrary = 512,                                 // no command: the options of libskiff.so
  kRoute = 4096,                                  // needs no model
  kServices = kServe | kLibrary,                  // what answers requests of others
  kRuns = kServices | kPredict | kChat | kBench,  // commands that load weights
  kSizes = kRuns | kInspect,                      // commands that plan memory
  kTexts = kServices | kPredict | kChat | kTokenize | kConstrain |
           kQuantize,  // commands that read or write text
};

enum class Kind { kSwitch, kInt, kFloat, kText, kChoice };

// What happens when the flag is given.
enum class Standing {
  kApplied,
  kLater,        // its feature is not implemented yet: one warning
  kMeaningless,  // belongs to something that Skiff does not need: one warning
};

struct Flag {
  std::string_view name;  // without dashes: "max-model-len"
  Kind kind = Kind::kText;
  unsigned commands = 0;
  std::string_view fallback;  // the default as a user would type it; empty: none
  std::string_view help;
  double min = 0, max = 0;   // for kInt and kFloat; no bound when equal
  std::string_view choices;  // for kChoice: "auto|dummy"
  std::string_view alias;    // another spelling, without dashes
  Standing standing = Standing::kApplied;
  bool repeatable = false;
};

// Every flag of every command, in the order of --help; groups are runs between headings.
struct FlagGroup {
  std::string_view heading;
  std::span<const Flag> flags;
};
std::span<const FlagGroup> flag_groups();

class Args {
 public:
  // `words` is what follows the command's name. Throws UsageError naming flag and value. Known
  // flags that cannot apply are collected in warnings(), once each.
  Args(Commands command, std::span<const std::string> words);

  Commands command() const { return command_; }
  const std::vector<std::string>& positional() const { return positional_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  bool given(std::string_view name) const { return values_.contains(std::string(name)); }

  // Returns the command line again as words: what was given of the flags that `command` has, and
  // positional values.
  std::vector<std::string> words(Commands command) const;

  // Returns the given value or the table's fallback. CHECKs that the table has the flag.
  bool on(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  std::string text(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;  // all values of a repeatable flag

 private:
  void take(const Flag& flag, std::string value, bool negated);
  const Flag& flag(std::string_view name) const;
  Commands command_;
  std::map<std::string, std::vector<std::string>> values_;
  std::vector<std::string> positional_, warnings_;
};

// Returns whether --help or -h is among the flags, and not the value of one nor behind "--".
bool wants_help(Commands command, std::span<const std::string> words);

std::string_view command_name(Commands command);
// "skiff serve", or for kLibrary "libskiff".
std::string spoken_name(Commands command);

}  // namespace skiff::apps

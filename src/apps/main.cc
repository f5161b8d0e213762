// apps/main.cc -- the `skiff` program. Every exception of start-up is caught here and printed as
// one line.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "apps/commands.h"
#include "apps/config_file.h"
#include "apps/environment.h"
#include "apps/help.h"
#include "base/load_error.h"
#include "base/log.h"
#include "base/nearest.h"

namespace skiff::apps {
namespace {

struct Command {
  Commands id;
  int (*run)(const Args&);
};

constexpr Command kCommands[] = {
    {kServe, run_serve},         {kPredict, run_predict},   {kChat, run_chat},
    {kBench, run_bench},         {kTokenize, run_tokenize}, {kInspect, run_inspect},
    {kConstrain, run_constrain}, {kQuantize, run_quantize}, {kDownload, run_download},
    {kRoute, run_route},         {kStart, run_start},       {kStop, run_stop},
};

// What the command line says overrides the file of --config, and that the environment.
std::vector<std::string> joined(Commands command, const EnvironmentFlags& environment,
                                const std::vector<std::string>& words) {
  std::vector<std::string> all = environment.words;
  const std::vector<std::string> file = config_file_words(Args(command, words));
  all.insert(all.end(), file.begin(), file.end());
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

void log_environment(const EnvironmentFlags& environment) {
  for (const std::string& note : environment.notes) spdlog::info("{}", note);
  if (!environment.ignored.empty())
    spdlog::warn(
        "set in the environment, without effect here: {} (probes and metrics are on the main "
        "port; skiff serve --help has the flags)",
        environment.ignored);
}

// `skiff stop` must find the server's port and needs no more.
EnvironmentFlags environment_for(Commands command) {
  if ((command & (kServe | kStart | kStop)) == 0) return {};
  EnvironmentFlags all = serve_environment(std::getenv);
  if (command != kStop) return all;
  EnvironmentFlags port;
  for (size_t i = 0; i < all.words.size(); ++i)
    if (all.words[i].starts_with("--port=")) {
      port.words.push_back(all.words[i]);
      port.variables.push_back(all.variables[i]);
    }
  return port;
}

int run(const Command& command, const std::vector<std::string>& words) {
  if (wants_help(command.id == kStart ? kStartServe : command.id, words)) {
    fmt::print("{}", command_help(command.id));
    return 0;
  }
  const EnvironmentFlags environment = environment_for(command.id);
  const Commands has = command.id == kStart ? kStartServe : command.id;
  check_environment(has, environment);
  const Args args(has, joined(has, environment, words));
  if (command.id & (kRuns | kRoute))
    init_log(args.text("log-level"),
             args.text("log-format") == "json" ? LogFormat::kJson : LogFormat::kText);
  else
    init_log("info");
  log_environment(environment);
  for (const std::string& warning : args.warnings()) spdlog::warn("{}", warning);
  return command.run(args);
}

const Command& command_named(const std::string& name) {
  std::vector<std::string_view> names;
  for (const Command& command : kCommands) {
    if (command_name(command.id) == name) return command;
    names.push_back(command_name(command.id));
  }
  const std::string_view best = nearest(name, names);
  throw UsageError(fmt::format("unknown command \"{}\"{} (see skiff --help)", name,
                               best.empty() ? "" : fmt::format("; did you mean {}?", best)));
}

// `subject` is the word behind help, or empty.
std::string help_on(const std::string& subject) {
  if (subject.empty()) return general_help();
  if (subject == "--markdown") return parameters_markdown();
  return command_help(command_named(subject).id);
}

int dispatch(std::vector<std::string> words) {
  const std::string name = words.empty() ? "--help" : words.front();
  if (name == "--help" || name == "-h" || name == "help") {
    fmt::print("{}", help_on(words.size() > 1 ? words[1] : ""));
    return 0;
  }
  if (name == "version" || name == "--version") {
    fmt::print("skiff {}\n", SKIFF_VERSION);
    return 0;
  }
  words.erase(words.begin());
  return run(command_named(name), words);
}

// A failed read or write of stdout is an error too: a full disk must not look like success.
int finish(int code) {
  if (std::fflush(stdout) != 0 && code == 0) {
    std::fprintf(stderr, "skiff: error: cannot write to stdout\n");
    return 1;
  }
  return code;
}

// NCCL reads its settings from the environment alone. NVLink multicast stays off, whatever anybody
// has set: a program that ends while it uses it can leave the devices of a host unusable. And NCCL
// must not have one device reach into the memory of another: ours is mapped for its own device
// (tensor/virtual_memory.h).
void settle_nccl() {
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  setenv("NCCL_P2P_DIRECT_DISABLE", "1", 1);
  setenv("NCCL_GRAPH_REGISTER", "0", 1);
}

}  // namespace
}  // namespace skiff::apps

int main(int argc, char** argv) {
  skiff::apps::settle_nccl();
  try {
    return skiff::apps::finish(skiff::apps::dispatch({argv + 1, argv + argc}));
  } catch (const skiff::apps::UsageError& e) {
    fmt::print(stderr, "skiff: error: {}\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    fmt::print(stderr, "skiff: error: {}\n", e.what());
    return 1;
  }
}

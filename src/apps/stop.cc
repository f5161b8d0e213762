// `skiff stop`: ends a server that `skiff start` has started.
#include <signal.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "apps/background.h"
#include "apps/commands.h"
#include "apps/pid_file.h"
#include "apps/port_flags.h"
#include "apps/stall.h"
#include "base/load_error.h"
#include "base/log.h"
#include "base/seconds.h"

namespace skiff::apps {

std::string background_file(const Args& args, std::string_view flag, std::string_view ending) {
  if (args.given(flag)) return args.text(flag);
  const int64_t port = naming_port(args);
  if (port == 0)
    throw UsageError(fmt::format("--port 0 is any port: name the server's files with --{}", flag));
  return fmt::format("log/skiff-{}{}", port, ending);
}

namespace {

// The seconds that a server gets after the second signal. It ends its threads within ten.
constexpr double kCutOffSeconds = 15;
constexpr double kKillSeconds = 10;

bool ends_within(const ProcessName& process, double seconds) {
  const auto begin = std::chrono::steady_clock::now();
  while (runs(process)) {
    if (seconds_since(begin) >= seconds) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

void send(const ProcessName& process, int signal) {
  if (kill(process.pid, signal) == 0 || errno == ESRCH) return;
  fail_load("process {} cannot be ended: it belongs to another user", process.pid);
}

double patience(const Args& args) {
  if (args.positional().empty()) return args.number("timeout");
  const std::string& word = args.positional().front();
  char* end = nullptr;
  const double seconds = std::strtod(word.c_str(), &end);
  if (args.positional().size() > 1)
    throw UsageError(
        fmt::format("unexpected argument \"{}\": skiff stop takes one number of seconds",
                    escaped(args.positional()[1])));
  if (end == word.c_str() || *end != '\0' || !(seconds >= 0))
    throw UsageError(
        fmt::format("skiff stop takes one number of seconds, not \"{}\"", escaped(word)));
  if (args.given("timeout"))
    throw UsageError(fmt::format(
        "skiff stop is given its seconds twice, as \"{}\" and with --timeout: leave one "
        "out",
        escaped(word)));
  return seconds;
}

}  // namespace

int run_stop(const Args& args) {
  const double seconds = patience(args);
  PidFile file(background_file(args, "pid-file", ".pid"), /*create=*/false);
  if (!file.present())
    fail_load("no server was started here: {} is not there (--port or --pid-file names another)",
              file.path());
  const auto process = file.process();
  if (!process || !runs(*process)) {
    file.remove();
    fmt::print("the server had ended already; {} is removed\n", file.path());
    return 0;
  }
  send(*process, SIGTERM);
  bool clean = ends_within(*process, seconds);
  if (!clean) {
    spdlog::warn("process {} has not ended after {} s: its replies are cut off", process->pid,
                 seconds);
    send(*process, SIGTERM);
    if (!ends_within(*process, kCutOffSeconds)) {
      spdlog::error("process {} does not end: it is killed", process->pid);
      send(*process, SIGKILL);
      if (!ends_within(*process, kKillSeconds))
        fail_load("process {} could not be killed", process->pid);
    }
  }
  file.remove();
  fmt::print("stopped process {}{}\n", process->pid, clean ? "" : "; replies were cut off");
  return clean ? 0 : kExitCutOff;
}

}  // namespace skiff::apps

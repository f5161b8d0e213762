// `skiff start`: a server in the background, with a log file and a pid file, awaited until it is
// ready or has ended.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "apps/background.h"
#include "apps/commands.h"
#include "apps/notify.h"
#include "apps/pid_file.h"
#include "base/load_error.h"
#include "base/log.h"
#include "base/seconds.h"

namespace skiff::apps {
namespace {

namespace fs = std::filesystem;

// Takes arrays of C strings, which end with a null.
class CStrings {
 public:
  explicit CStrings(std::vector<std::string> texts) : texts_(std::move(texts)) {
    for (std::string& text : texts_) pointers_.push_back(text.data());
    pointers_.push_back(nullptr);
  }
  char** get() { return pointers_.data(); }

 private:
  std::vector<std::string> texts_;
  std::vector<char*> pointers_;
};

std::vector<std::string> environment_with(const std::string& notify_name) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!std::string_view(*entry).starts_with("NOTIFY_SOCKET=")) all.emplace_back(*entry);
  all.push_back("NOTIFY_SOCKET=" + notify_name);
  return all;
}

// Starts this program anew, in a session of its own, its output appended to the log.
pid_t spawn_server(const Args& args, const std::string& log, const std::string& notify_name) {
  std::vector<std::string> words = args.words(kServe);
  words.insert(words.begin(), {"skiff", "serve"});
  CStrings argv(std::move(words)), envp(environment_with(notify_name));
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, "/proc/self/exe", &files, &attributes, argv.get(), envp.get());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) fail_load("{}: the server cannot be started: {}", log, std::strerror(error));
  return pid;
}

// Returns the last lines that the server has written.
std::string end_of(const std::string& log, uintmax_t from) {
  constexpr uintmax_t kMost = 2000;
  std::ifstream in(log, std::ios::binary | std::ios::ate);
  const auto size = static_cast<uintmax_t>(std::max<std::streamoff>(0, in.tellg()));
  const uintmax_t begin = std::max(from, size - std::min(size, kMost));
  std::string text(size - std::min(size, begin), '\0');
  in.seekg(static_cast<std::streamoff>(begin));
  in.read(text.data(), std::ssize(text));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string ending_of(int status) {
  if (WIFSIGNALED(status)) return fmt::format("it was ended by signal {}", WTERMSIG(status));
  return fmt::format("it ended with code {}", WEXITSTATUS(status));
}

// Returns when the server is ready. Throws LoadError where it ends before, with its last words, or
// is not ready in time; it is left alone then.
std::string await_ready(const Args& args, pid_t pid, NotifyListener& listener,
                        const std::string& log, uintmax_t log_begin) {
  const auto begin = std::chrono::steady_clock::now();
  const double limit = args.number("start-timeout");
  std::string shown;
  for (;;) {
    const std::string state = listener.next(/*milliseconds=*/50);
    const std::string status(notified(state, "STATUS"));
    if (notified(state, "READY") == "1") return status;
    if (!status.empty() && status != shown) fmt::print(stderr, "{}\n", shown = status);
    if (!state.empty()) continue;
    int ending = 0;
    if (waitpid(pid, &ending, WNOHANG) == pid)
      fail_load("the server did not start: {}; {} ends with\n{}", ending_of(ending), log,
                end_of(log, log_begin));
    if (seconds_since(begin) > limit)
      fail_load(
          "the server is not ready after {} s (--start-timeout); process {} goes on, see {}; skiff "
          "stop ends it",
          limit, pid, log);
  }
}

}  // namespace

int run_start(const Args& args) {
  model_folder(args);  // a command line without a model is refused before anything is started
  PidFile pid_file(background_file(args, "pid-file", ".pid"), /*create=*/true);
  if (const auto old = pid_file.process()) {
    if (runs(*old))
      fail_load(
          "a server runs already: process {} ({}); end it with skiff stop, or choose another "
          "--port",
          old->pid, pid_file.path());
    spdlog::warn("{}: process {} has ended without skiff stop; a new server takes its place",
                 pid_file.path(), old->pid);
  }
  const std::string log = background_file(args, "log-file", ".log");
  if (fs::path(log).has_parent_path()) fs::create_directories(fs::path(log).parent_path());
  std::error_code none;
  const uintmax_t log_begin = fs::exists(log, none) ? fs::file_size(log, none) : 0;
  NotifyListener listener;
  const pid_t pid = spawn_server(args, log, listener.name());
  const auto process = process_named(pid);
  if (process) pid_file.write(*process);
  try {
    const std::string status = await_ready(args, pid, listener, log, log_begin);
    fmt::print("{} (process {}, log {})\n", status, pid, log);
    return 0;
  } catch (...) {
    if (!process || !runs(*process)) pid_file.remove();
    throw;
  }
}

}  // namespace skiff::apps

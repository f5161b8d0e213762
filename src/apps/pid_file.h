// apps/pid_file.h -- which process a pid file names, and whether that very process still runs.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace skiff::apps {

// A number is given again when its process has ended, so the time of its start goes with it.
struct ProcessName {
  pid_t pid = 0;
  uint64_t started = 0;  // clock ticks since the machine's start
  bool operator==(const ProcessName&) const = default;
};

// Returns the process that has this number now; nothing if there is none, or one that only waits to
// be collected by its parent.
std::optional<ProcessName> process_named(pid_t pid);
inline bool runs(const ProcessName& process) { return process_named(process.pid) == process; }

// Write and read the contents of a pid file. Any other text is read as nothing.
std::string pid_text(const ProcessName& process);
std::optional<ProcessName> read_pid_text(const std::string& text);

// A pid file that is locked while it is read and written again, so that of two commands that start
// a server at the same time the second one sees the first one's server.
class PidFile {
 public:
  // Opens the file, or with `create` makes it and its folder. Throws LoadError where it cannot be
  // opened, or another process holds it. Without `create`, present() is false where there is none.
  PidFile(std::string path, bool create);
  ~PidFile();
  PidFile(const PidFile&) = delete;
  bool present() const { return fd_ >= 0; }
  const std::string& path() const { return path_; }
  std::optional<ProcessName> process() const;  // nothing if it names none
  void write(const ProcessName& process);      // throws LoadError
  void remove();

 private:
  bool take(bool create);
  const std::string path_;
  int fd_ = -1;
};

}  // namespace skiff::apps

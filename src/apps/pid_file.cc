#include "apps/pid_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/load_error.h"

namespace skiff::apps {

namespace fs = std::filesystem;

// /proc/PID/stat: "PID (NAME) STATE ...", where the name may hold anything; the start is field 22.
std::optional<ProcessName> process_named(pid_t pid) {
  if (pid <= 0) return std::nullopt;
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  const size_t name_end = line.rfind(')');
  if (name_end == line.npos) return std::nullopt;
  std::istringstream rest(line.substr(name_end + 1));
  std::string state, skipped;
  rest >> state;
  if (state == "Z" || state == "X") return std::nullopt;
  constexpr int kBetween = 18;  // fields 4 to 21
  for (int i = 0; i < kBetween; ++i) rest >> skipped;
  ProcessName process{.pid = pid};
  if (!(rest >> process.started)) return std::nullopt;
  return process;
}

std::string pid_text(const ProcessName& process) {
  return fmt::format("{} {}\n", process.pid, process.started);
}

std::optional<ProcessName> read_pid_text(const std::string& text) {
  std::istringstream in(text);
  ProcessName process;
  std::string more;
  if (!(in >> process.pid >> process.started) || in >> more || process.pid <= 0)
    return std::nullopt;
  return process;
}

namespace {

// Returns true if somebody has removed the file since it was opened.
bool removed(int fd) {
  struct stat state {};
  return fstat(fd, &state) == 0 && state.st_nlink == 0;
}

}  // namespace

PidFile::PidFile(std::string path, bool create) : path_(std::move(path)) {
  if (create && fs::path(path_).has_parent_path()) {
    std::error_code ignored;  // open() says what is wrong
    fs::create_directories(fs::path(path_).parent_path(), ignored);
  }
  // Whoever held the file may have removed it before it was locked here.
  while (!take(create))
    ;
}

// Returns false if the file was removed meanwhile.
bool PidFile::take(bool create) {
  fd_ = open(path_.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0644);
  if (fd_ < 0 && errno == ENOENT && !create) return true;
  if (fd_ < 0) fail_load("{}: cannot be opened: {}", path_, std::strerror(errno));
  const bool held = flock(fd_, LOCK_EX | LOCK_NB) == 0;
  if (held && !removed(fd_)) return true;
  close(fd_);
  if (held) return false;
  fail_load("{}: another skiff start or skiff stop is at work with it", path_);
}

PidFile::~PidFile() {
  if (fd_ >= 0) close(fd_);
}

std::optional<ProcessName> PidFile::process() const {
  std::array<char, 128> text{};
  const ssize_t n = fd_ < 0 ? 0 : pread(fd_, text.data(), text.size() - 1, 0);
  return n <= 0 ? std::nullopt : read_pid_text(text.data());
}

void PidFile::write(const ProcessName& process) {
  const std::string text = pid_text(process);
  if (ftruncate(fd_, 0) != 0 || pwrite(fd_, text.data(), text.size(), 0) != std::ssize(text))
    fail_load("{}: cannot be written: {}", path_, std::strerror(errno));
}

void PidFile::remove() { unlink(path_.c_str()); }

}  // namespace skiff::apps

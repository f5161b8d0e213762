#include "serve/journal/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/load_error.h"
#include "base/log.h"

namespace skiff::journal {
namespace {

int open_to_append(const std::string& path) {
  constexpr int kMode = 0640;
  return open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, kMode);
}

}  // namespace

LogFile::LogFile(std::string path) : path_(std::move(path)), file_(open_to_append(path_)) {
  if (file_ < 0) fail_load("--request-log {}: {}", path_, std::strerror(errno));
}

LogFile::~LogFile() {
  if (file_ >= 0) close(file_);
}

// Returns how many bytes were written: all of them, or errno says why not.
size_t LogFile::append(const std::string& text) const {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(file_, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  return done;
}

size_t LogFile::write(const std::vector<std::string>& lines) {
  if (reopens_.exchange(false)) {
    const int opened = open_to_append(path_);
    if (opened < 0) {
      spdlog::error("--request-log {}: {}; the old file stays in use", path_, std::strerror(errno));
    } else {
      close(std::exchange(file_, opened));
      inside_line_ = false;
    }
  }
  std::string text = inside_line_ ? "\n" : "";
  const size_t begin = text.size();
  for (const std::string& line : lines) (text += line) += '\n';
  const size_t done = append(text);
  const bool good = done == text.size();
  if (!good && !troubled_)
    spdlog::error("--request-log {}: {}; lines are lost", path_, std::strerror(errno));
  troubled_ = !good;
  if (done > 0) inside_line_ = text[done - 1] != '\n';
  size_t written = 0;
  for (size_t at = begin; at < done; ++at) written += text[at] == '\n';
  return lines.size() - written;
}

}  // namespace skiff::journal
